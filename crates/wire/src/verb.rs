//! What everybody must know of a message, said once: its number, who may send it, and how each hop treats it.
//! What a message holds is in its own file in `msg/`; what it does is in a file of its name at either end.

use crate::CodecError;
use model::counters::Place;

/// Who may send a message. Each knows of itself that it is more than the ones before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Sender {
    /// Whoever has a session.
    Client,
    /// Somebody who proved to be the server of a target ([`crate::proof::Claimant::Target`]); of which one,
    /// and whether that may say so, the message's own rules decide.
    Target,
    /// A server of the file system ([`crate::proof::Claimant::Server`]).
    Server,
    /// The administrator of the server's host, through the control socket of its daemon: nobody on the
    /// network.
    Administrator,
}

/// What the answer to a change is. Of a change that is done again after a restart it says how the two answers
/// are compared, and which of the server's choices the first one holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Every byte counts, and it holds no choice.
    Plain,
    /// The entry of the file.
    Entry,
    /// That, and whether the file was made.
    Created,
    /// The files that the change touched.
    Changed,
    /// Where it was written, and the file.
    Written,
    /// What became of the file.
    Closed,
}

/// The data that goes beside a message's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BulkSide {
    None,
    Reply,
    Request,
}

/// What counters call a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// By its own name behind the service's: `mds_getattr`.
    Itself,
    /// By this word behind the service's: `ost_punch`.
    Word(&'static str),
    /// By this, whatever the service: `ldlm_cancel`.
    Whole(&'static str),
}

/// The properties of a message. A line of the table names those in which it differs from most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verb {
    pub sender: Sender,
    /// Changes something on the server: gets a transaction number and a reply slot that survives a restart.
    pub modifies: bool,
    pub answer: Answer,
    /// Served while the clients of before a restart are awaited: it belongs to a session's recovery, or an
    /// administrator looks.
    pub in_recovery: bool,
    /// Others may wait at the server until it was executed: it waits for no others at its sender, and servers
    /// keep memory for it. An owner tells what it has done before it gives a lease back for which requests
    /// wait, this client's own perhaps.
    pub urgent: bool,
    /// Asks nothing that a mount's own operations, of which the server was not told, could have changed: goes
    /// before them.
    pub past_barrier: bool,
    /// Goes whatever else is under way (`max_mod_rpcs_in_flight`): others may wait for what it gives back.
    pub unlimited: bool,
    /// May be part of a batch.
    pub in_batch: bool,
    pub bulk: BulkSide,
    /// What a mount's `stats` call it.
    pub named: Named,
    /// The counter of its time in `obdfilter.*.stats`.
    pub ost_counter: Option<&'static str>,
    /// Done by the program that serves the target, not by the target.
    pub by_host: bool,
}

impl Verb {
    const fn of(sender: Sender) -> Verb {
        Verb {
            sender,
            modifies: false,
            answer: Answer::Plain,
            in_recovery: false,
            urgent: false,
            past_barrier: false,
            unlimited: false,
            in_batch: true,
            bulk: BulkSide::None,
            named: Named::Itself,
            ost_counter: None,
            by_host: false,
        }
    }

    const fn modifies(self) -> Verb {
        Verb { modifies: true, ..self }
    }

    /// Changes something, and is answered with this.
    const fn answers(self, answer: Answer) -> Verb {
        Verb { modifies: true, answer, ..self }
    }

    const fn in_recovery(self) -> Verb {
        Verb { in_recovery: true, ..self }
    }

    const fn urgent(self) -> Verb {
        Verb { urgent: true, ..self }
    }

    const fn past_barrier(self) -> Verb {
        Verb { past_barrier: true, ..self }
    }

    const fn unlimited(self) -> Verb {
        Verb { unlimited: true, ..self }
    }

    const fn not_in_batch(self) -> Verb {
        Verb { in_batch: false, ..self }
    }

    const fn moves(self, bulk: BulkSide) -> Verb {
        Verb { bulk, ..self }
    }

    const fn word(self, word: &'static str) -> Verb {
        Verb { named: Named::Word(word), ..self }
    }

    const fn named(self, whole: &'static str) -> Verb {
        Verb { named: Named::Whole(whole), ..self }
    }

    const fn by_host(self) -> Verb {
        Verb { by_host: true, ..self }
    }

    const fn ost_counter(self, name: &'static str) -> Verb {
        Verb { ost_counter: Some(name), ..self }
    }
}

macro_rules! verbs {
    ($($sender:ident { $($name:ident = $num:literal $(, $prop:ident $(($arg:expr))?)*;)* })*) => {
        /// What a message asks for. Numbers are never reused.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Op { $($($name = $num,)*)* }

        impl Op {
            pub const ALL: &'static [Op] = &[$($(Op::$name,)*)*];

            pub fn from_u16(n: u16) -> Result<Op, CodecError> {
                match n { $($($num => Ok(Op::$name),)*)* _ => Err(CodecError::Opcode(n)) }
            }

            /// Its place among all of them.
            pub const fn index(self) -> usize {
                let place = PLACES[self as usize] as usize;
                assert!(place < Op::ALL.len(), "every operation has its place");
                place
            }

            /// How it is treated.
            pub const fn verb(self) -> &'static Verb {
                match self { $($(Op::$name => const { &Verb::of(Sender::$sender)$(.$prop($($arg)?))* },)*)* }
            }
        }
    };
}

/// The place of each operation in [`Op::ALL`], by its number.
const PLACES: [u8; NUMBERS] = {
    let mut places = [0; NUMBERS];
    let mut i = 0;
    while i < Op::ALL.len() {
        places[Op::ALL[i] as usize] = i as u8;
        i += 1;
    }
    places
};

/// The largest number, and one.
const NUMBERS: usize = 128;

impl Place for Op {
    fn place(self) -> usize {
        self.index()
    }
}

verbs! {
    Client {
        // sessions
        Ping = 1, in_recovery, past_barrier, named("obd_ping");
        Disconnect = 2, modifies, in_recovery, past_barrier;
        Batch = 3, modifies, urgent, past_barrier, not_in_batch, ost_counter("batch");
        Statfs = 4, in_recovery, ost_counter("statfs");
        Quotactl = 7, in_recovery, ost_counter("quotactl");
        GetParam = 5, in_recovery, past_barrier, ost_counter("get_info");
        // names (MDT)
        Lookup = 20;
        Getattr = 21;
        Setattr = 22, answers(Answer::Entry);
        Create = 23, answers(Answer::Created);
        Mkdir = 24, answers(Answer::Entry);
        Mknod = 25, answers(Answer::Entry);
        Symlink = 26, answers(Answer::Entry);
        Readlink = 27;
        Link = 28, answers(Answer::Entry);
        Unlink = 29, answers(Answer::Changed);
        Rmdir = 30, answers(Answer::Changed);
        Rename = 31, answers(Answer::Changed);
        Open = 32, answers(Answer::Entry);
        Close = 33, answers(Answer::Closed), unlimited;
        Readdir = 34, word("readpage");
        Getxattr = 35;
        Setxattr = 36, modifies;
        Listxattr = 37;
        Removexattr = 38, modifies;
        Setlayout = 39, answers(Answer::Entry);
        Getpath = 40;
        Allocseq = 41, modifies, past_barrier;
        Grow = 42, answers(Answer::Entry);
        Own = 43;
        Fetch = 44;
        Ostfiles = 45;
        Layout = 46;
        Migrate = 47, answers(Answer::Entry), unlimited;
        Instantiate = 48, answers(Answer::Entry);
        Components = 49, answers(Answer::Entry);
        Withdraw = 50, past_barrier;
        Scan = 51;
        Recreate = 52, answers(Answer::Entry);
        Swap = 53, answers(Answer::Entry);
        Changelog = 54, not_in_batch;
        Changelogclear = 55, modifies;
        Setquota = 56, modifies, not_in_batch;
        Acquire = 57, past_barrier, not_in_batch;
        Purge = 58, answers(Answer::Changed);
        Quotadir = 59, modifies, not_in_batch;
        // locks (MDT)
        Enqueue = 60, modifies, named("ldlm_enqueue");
        Cancel = 61, modifies, past_barrier, unlimited, named("ldlm_cancel");
        Getlock = 62, past_barrier;
        Reclaim = 63, modifies, in_recovery, not_in_batch;
        // trash (MDT)
        Trashdir = 74, modifies, not_in_batch;
        Trashlist = 75;
        Trashtake = 76, modifies, not_in_batch;
        Makeroom = 77, not_in_batch;
        // data (OST; what lies with the inode, MDT)
        Read = 80, moves(BulkSide::Reply), ost_counter("read");
        Write = 81, answers(Answer::Written), moves(BulkSide::Request), ost_counter("write");
        Truncate = 82, modifies, word("punch"), ost_counter("punch");
        Fallocate = 83, modifies, ost_counter("fallocate");
        Seek = 84, ost_counter("objseek");
        Glimpse = 85, ost_counter("getattr");
        Sync = 87, ost_counter("sync");
        Extent = 88, ost_counter("ldlm_enqueue");
        Grant = 89;
        Writelist = 90, answers(Answer::Written), moves(BulkSide::Request), ost_counter("write");
        Glimpselist = 92, not_in_batch, ost_counter("getattr");
        // configuration (MGS)
        Config = 101;
        Configview = 102, past_barrier, not_in_batch;
    }
    Target {
        Register = 100, modifies;
    }
    Server {
        Destroy = 86, modifies, ost_counter("destroy");
        Fence = 91, modifies, ost_counter("fence");
        Setowner = 93, modifies, ost_counter("setattr");
        Quotashare = 94, modifies, not_in_batch, ost_counter("quotactl");
        Objectlist = 95, not_in_batch, ost_counter("getattr");
        // of the program that serves a target
        Barrier = 96, in_recovery, past_barrier, not_in_batch, by_host;
        Snapshot = 97, in_recovery, past_barrier, not_in_batch, by_host;
    }
    Administrator {
        SetParam = 6, modifies, in_recovery, past_barrier, ost_counter("set_info");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_knows_its_place() {
        assert!(Op::ALL.iter().enumerate().all(|(i, op)| op.index() == i));
    }

    #[test]
    fn what_is_answered_with_more_changes_something() {
        for v in Op::ALL.iter().map(|op| op.verb()) {
            assert!(v.modifies || v.answer == Answer::Plain, "{v:?}");
            assert!(v.modifies || !v.unlimited, "only changes are limited: {v:?}");
            // Data that travels with what goes before others would hold them up.
            assert!(!v.urgent || v.bulk == BulkSide::None, "{v:?}");
        }
    }
}
