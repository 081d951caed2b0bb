//! `nacre top` on a screen. A thread looks, so that keys and signals never wait for a server.

use super::gather;
use super::live::{INTERVAL_MAX_S, INTERVAL_MIN_S, Options, clock, order, summary};
use super::rows::{Between, Look, Order, View, chosen};
use super::text::table;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;
use world::sys::terminal::{self, Key, Terminal};
use world::sys::{self, Deadline};

/// How long a signal waits at most.
const TICK: Duration = Duration::from_millis(50);
/// What may be typed as a filter.
const FILTER_MAX: usize = 64;

const HELP: &[&str] = &[
    "t j c l   targets, jobs, clients, latencies; Tab: the next view",
    "< >       sort by the column to the left, to the right",
    "r         the other way round",
    "/         show rows with these words only; Enter keeps, Escape forgets them",
    "+ -       look less often, more often",
    "space     stand still, and go on",
    "arrows, PageUp, PageDown, Home, End   move in a long list",
    "h         this text",
    "q         end",
];

/// What the keys made of it.
#[derive(Clone, PartialEq, Debug)]
struct State {
    view: View,
    order: Order,
    filter: String,
    /// The filter is being typed.
    typing: bool,
    interval: Duration,
    still: bool,
    help: bool,
    /// The first row that is shown.
    from: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Nothing,
    Draw,
    /// Other things are wanted: look at once.
    Look,
    End,
}

impl State {
    fn new(o: &Options) -> State {
        let view = o.view.unwrap_or(View::Targets);
        State {
            view,
            order: order(view, o.sort.as_ref()).unwrap_or(view.order()),
            filter: o.filter.clone(),
            typing: false,
            interval: o.interval,
            still: false,
            help: false,
            from: 0,
        }
    }

    fn show(&mut self, view: View) -> Then {
        (self.view, self.order, self.from, self.help) = (view, view.order(), 0, false);
        Then::Look
    }

    fn sort_by(&mut self, step: isize) {
        let len = self.view.columns().len();
        self.order =
            Order { column: (self.order.column + len).wrapping_add_signed(step) % len, reversed: false };
    }

    fn look_every(&mut self, factor: f64) {
        let s = (self.interval.as_secs_f64() * factor).clamp(INTERVAL_MIN_S, INTERVAL_MAX_S);
        self.interval = Duration::from_secs_f64(s);
    }

    fn typed(&mut self, key: Key) -> Then {
        match key {
            Key::Enter => self.typing = false,
            Key::Escape => (self.typing, self.filter) = (false, String::new()),
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(c) if self.filter.chars().count() < FILTER_MAX => self.filter.push(c),
            _ => {}
        }
        self.from = 0;
        Then::Draw
    }

    /// A key; `page`: rows on the screen.
    fn press(&mut self, key: Key, page: usize) -> Then {
        match key {
            Key::Control('c') => return Then::End,
            Key::Resized | Key::Control('l') => return Then::Draw,
            _ if self.typing => return self.typed(key),
            _ => {}
        }
        match key {
            Key::Char('q' | 'Q') => return Then::End,
            Key::Char('t' | '1') => return self.show(View::Targets),
            Key::Char('j' | '2') => return self.show(View::Jobs),
            Key::Char('c' | '3') => return self.show(View::Clients),
            Key::Char('l' | '4') => return self.show(View::Latencies),
            Key::Char('\t') => {
                let at = View::ALL.iter().position(|v| *v == self.view).unwrap_or(0);
                return self.show(View::ALL[(at + 1) % View::ALL.len()]);
            }
            Key::Char('<') | Key::Left => self.sort_by(-1),
            Key::Char('>') | Key::Right => self.sort_by(1),
            Key::Char('r') => self.order.reversed = !self.order.reversed,
            Key::Char('/') => self.typing = true,
            Key::Escape => (self.filter, self.help) = (String::new(), false),
            Key::Char('+') => self.look_every(2.0),
            Key::Char('-') => self.look_every(0.5),
            Key::Char(' ') => self.still = !self.still,
            Key::Char('h' | '?') => self.help = !self.help,
            Key::Up => self.from = self.from.saturating_sub(1),
            Key::Down => self.from = self.from.saturating_add(1),
            Key::PageUp => self.from = self.from.saturating_sub(page),
            Key::PageDown => self.from = self.from.saturating_add(page),
            Key::Home => self.from = 0,
            Key::End => self.from = usize::MAX,
            _ => return Then::Nothing,
        }
        Then::Draw
    }

    /// The lines of a screen of this size.
    fn lines(
        &mut self,
        looks: &(Option<Look>, Look),
        (width, height): (usize, usize),
    ) -> Vec<(terminal::Look, String)> {
        let (before, now) = looks;
        let every = format!("every {} s", self.interval.as_secs_f64());
        let still = if self.still { ", standing still" } else { "" };
        let head = format!("nacre top - {} - {} - {every}{still}", self.view.name(), clock(now.wall_s));
        let mut out = vec![(terminal::Look::Bold, head)];
        let plain = |text: String| (terminal::Look::Plain, text);
        if self.help {
            out.extend(HELP.iter().map(|l| plain((*l).to_string())));
            return out;
        }
        let between = before.as_ref().map(|b| Between::new(b, now));
        match &between {
            Some(b) => out.extend(summary(b, now).into_iter().map(plain)),
            None => {
                out.push(plain("looking for the first time; rates are there with the second look".into()))
            }
        }
        out.push(plain(match (self.typing, self.filter.is_empty()) {
            (true, _) => format!("filter: {}_", self.filter),
            (false, false) => format!("filter: {} (Escape forgets it)", self.filter),
            (false, true) => "q ends, h helps".into(),
        }));
        let rows = between.map_or(Vec::new(), |b| chosen(b.rows(self.view), self.order, &self.filter));
        let page = height.saturating_sub(out.len() + 1).max(1);
        self.from = self.from.min(rows.len().saturating_sub(page));
        let shown = &rows[self.from..rows.len().min(self.from + page)];
        let mut lines = table(self.view, shown, self.order, width).into_iter();
        out.extend(lines.next().map(|l| (terminal::Look::Reverse, l)));
        out.extend(lines.map(plain));
        if rows.is_empty() && before.is_some() && out.len() < height {
            out.push(plain(nothing(self).into()));
        }
        assert!(out.len() <= height.max(6), "it fits on the screen");
        out
    }
}

fn nothing(s: &State) -> &'static str {
    match s.view {
        _ if !s.filter.is_empty() => "no row has these words",
        View::Jobs => {
            "no job did anything; clients send job ids if jobid_var says so (lctl set_param jobid_var=procname_uid)"
        }
        View::Clients => "no target of this host knows a client",
        View::Latencies => "nothing was done",
        View::Targets => "no target",
    }
}

/// Whoever looks, in a thread of its own: it is asked for a view, and answers with a look.
struct Looker {
    ask: SyncSender<View>,
    said: Receiver<(View, Look)>,
    under_way: bool,
}

impl Looker {
    fn start() -> Result<Looker, Failure> {
        let (ask, asked) = sync_channel::<View>(1);
        let (say, said) = sync_channel(1);
        // Left behind if it waits for a server: it ends with this program.
        let work = move || {
            while let Ok(view) = asked.recv() {
                if say.send((view, gather::look(&[view]))).is_err() {
                    return;
                }
            }
        };
        sys::thread("look", work).map_err(|e| Failure::io("cannot start", "a thread", e))?;
        Ok(Looker { ask, said, under_way: false })
    }

    fn want(&mut self, view: View) {
        if !self.under_way && self.ask.try_send(view).is_ok() {
            self.under_way = true;
        }
    }

    fn answer(&mut self) -> Result<Option<(View, Look)>, Failure> {
        match self.said.try_recv() {
            Ok(said) => {
                assert!(self.under_way, "somebody asked");
                self.under_way = false;
                Ok(Some(said))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                Err(Failure::op("cannot look any more", "a thread ended", model::Errno::EIO))
            }
        }
    }
}

/// The screen, until somebody ends it, or so many looks were shown.
pub fn run(o: &Options, first: Look, interrupt: &Interrupt) -> Result<(), Failure> {
    let gone = |e| Failure::io("cannot use", "the terminal", e);
    let mut looker = Looker::start()?;
    let mut state = State::new(o);
    let mut of = View::Targets;
    let mut looks = (None, first);
    let mut due = Deadline::after(if state.view == of { state.interval } else { Duration::ZERO });
    let (mut drawn, mut shown) = (false, 0u64);
    let screen = Terminal::take().map_err(gone)?;
    while !interrupt.stopped() && o.looks.is_none_or(|n| shown < n) {
        if due.passed() && !state.still {
            looker.want(state.view);
        }
        if let Some((view, look)) = looker.answer()? {
            // A look for another view has other things in it.
            let before = std::mem::replace(&mut looks.1, look);
            looks.0 = (view == of).then_some(before);
            (of, drawn) = (view, false);
            shown += u64::from(looks.0.is_some());
            let soon = if view == state.view { state.interval } else { Duration::ZERO };
            due = Deadline::after(if looks.0.is_none() { soon.min(Duration::from_secs(1)) } else { soon });
        }
        if !drawn {
            let lines = state.lines(&looks, screen.size());
            screen.draw(&lines).map_err(gone)?;
            drawn = true;
        }
        let page = screen.size().1.saturating_sub(6);
        match screen.key(TICK).map_err(gone)?.map(|k| state.press(k, page)) {
            Some(Then::End) => return Ok(()),
            Some(Then::Look) => (looks.0, due, drawn) = (None, Deadline::after(Duration::ZERO), false),
            Some(Then::Draw) => drawn = false,
            Some(Then::Nothing) | None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let view = View::Targets;
        State {
            view,
            order: view.order(),
            filter: String::new(),
            typing: false,
            interval: Duration::from_secs(2),
            still: false,
            help: false,
            from: 0,
        }
    }

    #[test]
    fn keys_choose_views_orders_and_words() {
        let mut s = state();
        assert_eq!((s.press(Key::Char('j'), 9), s.view), (Then::Look, View::Jobs));
        assert_eq!((s.press(Key::Char('\t'), 9), s.view), (Then::Look, View::Clients));
        s.press(Key::Char('t'), 9);
        s.press(Key::Char('<'), 9);
        assert_eq!(s.order.column, View::Targets.columns().len() - 1);
        s.press(Key::Right, 9);
        s.press(Key::Char('r'), 9);
        assert_eq!(s.order, Order { column: 0, reversed: true });
        for c in ['/', 'q', 't', 'x'] {
            s.press(Key::Char(c), 9);
        }
        s.press(Key::Backspace, 9);
        s.press(Key::Enter, 9);
        assert_eq!((s.filter.as_str(), s.typing, s.view), ("qt", false, View::Targets));
        s.press(Key::Escape, 9);
        assert!(s.filter.is_empty());
        for (key, secs) in [('+', 4.0), ('-', 2.0), ('-', 1.0), ('-', 0.5), ('-', 0.5)] {
            s.press(Key::Char(key), 9);
            assert_eq!(s.interval.as_secs_f64(), secs);
        }
        assert_eq!(s.press(Key::Char('z'), 9), Then::Nothing);
        assert_eq!(s.press(Key::Char('q'), 9), Then::End);
        s.typing = true;
        assert_eq!(s.press(Key::Control('c'), 9), Then::End, "whatever is being typed");
    }

    #[test]
    fn eighty_by_twenty_four_is_enough_and_long_lists_move() {
        use crate::rates::Totals;
        let look = |at_ns| Look {
            at_ns,
            totals: (0..100).map(|n| (format!("d-OST{n:04x}"), Totals::default())).collect(),
            ..Look::default()
        };
        let mut s = state();
        let both = (Some(look(0)), look(1_000_000_000));
        let lines = s.lines(&both, (80, 24));
        assert_eq!(lines.len(), 24);
        assert!(lines[3].1.starts_with("TARGET> ") && lines[4].1.starts_with("d-OST0000"), "{lines:?}");
        assert!(lines.iter().all(|(_, l)| l.chars().count() <= 80));
        s.press(Key::End, 20);
        assert!(s.lines(&both, (80, 24)).last().is_some_and(|l| l.1.starts_with("d-OST0063")));
        s.press(Key::PageUp, 20);
        assert!(s.lines(&both, (80, 24))[4].1.starts_with("d-OST003c"));
        s.filter = "nobody".into();
        assert_eq!(s.lines(&both, (80, 24))[4].1, "no row has these words");
        let first = (None, look(0));
        assert!(s.lines(&first, (80, 24))[1].1.starts_with("looking for the first time"));
        assert!(s.lines(&both, (10, 3)).len() <= 6, "a small one is no error");
        s.help = true;
        assert!(s.lines(&both, (80, 24)).len() == HELP.len() + 1);
        assert!(HELP.iter().all(|l| l.chars().count() <= 80));
    }
}
