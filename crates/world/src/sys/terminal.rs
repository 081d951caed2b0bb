//! A terminal that a command has for itself for a while: the whole screen, and keys as they are pressed.

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    Plain,
    Bold,
    /// Dark on light, as headings of columns are.
    Reverse,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    Char(char),
    /// A letter with the control key.
    Control(char),
    Enter,
    Escape,
    Backspace,
    Left,
    Right,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// No key: the terminal has another size now.
    Resized,
}

/// The screen. When it is dropped, at a panic as well, the terminal is as it was before.
pub struct Terminal {
    _private: (),
}

/// Whether both ends of the program are a terminal, so that it can be had.
pub fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

impl Terminal {
    /// Takes the terminal of standard input and output. `ENOTTY` and others.
    pub fn take() -> io::Result<Terminal> {
        enable_raw_mode()?;
        // From here on it is given back, whatever fails.
        let t = Terminal { _private: () };
        execute!(io::stdout(), EnterAlternateScreen, Hide, Clear(ClearType::All))?;
        Ok(t)
    }

    /// Columns and lines; the common size if the terminal does not say.
    pub fn size(&self) -> (usize, usize) {
        match size() {
            Ok((w, h)) if w > 0 && h > 0 => (w.into(), h.into()),
            _ => (80, 24),
        }
    }

    /// Shows these lines from the top, and nothing below. They are cut at the edge, and what would control
    /// the terminal within them is not sent.
    pub fn draw(&self, lines: &[(Look, String)]) -> io::Result<()> {
        let (width, height) = self.size();
        let mut out = io::stdout().lock();
        for (y, (look, text)) in lines.iter().take(height).enumerate() {
            let shown: String =
                text.chars().map(|c| if c.is_control() { '?' } else { c }).take(width).collect();
            assert!(y < height && shown.chars().count() <= width, "what is drawn is on the screen");
            let y = u16::try_from(y).unwrap_or(u16::MAX);
            queue!(out, MoveTo(0, y))?;
            match look {
                Look::Plain => queue!(out, Print(&shown))?,
                Look::Bold => {
                    queue!(
                        out,
                        SetAttribute(Attribute::Bold),
                        Print(&shown),
                        SetAttribute(Attribute::Reset)
                    )?;
                }
                Look::Reverse => queue!(
                    out,
                    SetAttribute(Attribute::Reverse),
                    Print(format!("{shown:<width$}")),
                    SetAttribute(Attribute::Reset)
                )?,
            }
            if shown.chars().count() < width && *look != Look::Reverse {
                queue!(out, Clear(ClearType::UntilNewLine))?;
            }
        }
        if lines.len() < height {
            queue!(
                out,
                MoveTo(0, u16::try_from(lines.len()).unwrap_or(u16::MAX)),
                Clear(ClearType::FromCursorDown)
            )?;
        }
        out.flush()
    }

    /// The next key, if one is pressed within `d`. An error: the terminal is gone.
    pub fn key(&self, d: Duration) -> io::Result<Option<Key>> {
        if !event::poll(d)? {
            return Ok(None);
        }
        Ok(match event::read()? {
            Event::Resize(..) => Some(Key::Resized),
            Event::Key(k) if k.kind != KeyEventKind::Release => match k.code {
                KeyCode::Char(c) if k.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Control(c)),
                KeyCode::Char(c) => Some(Key::Char(c)),
                KeyCode::Enter => Some(Key::Enter),
                KeyCode::Esc => Some(Key::Escape),
                KeyCode::Backspace => Some(Key::Backspace),
                KeyCode::Left => Some(Key::Left),
                KeyCode::Right => Some(Key::Right),
                KeyCode::Up => Some(Key::Up),
                KeyCode::Down => Some(Key::Down),
                KeyCode::PageUp => Some(Key::PageUp),
                KeyCode::PageDown => Some(Key::PageDown),
                KeyCode::Home => Some(Key::Home),
                KeyCode::End => Some(Key::End),
                _ => None,
            },
            _ => None,
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Who has no terminal any more has none to give back.
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
