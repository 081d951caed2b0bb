//! `lst`: the transport alone, between nodes, as `lnet_selftest` has it. `console` remembers groups and
//! batches between commands, `proto` is what nodes say, `node` what a node does, `stat` what it shows.

mod commands;
mod console;
mod network;
mod node;
mod proto;
mod stat;

use admin::failure::Failure;
pub use network::network;
use std::ffi::OsString;

const USAGE: &str = "\
usage: lst COMMAND ...   (export LST_SESSION=$$ first)

  serve [--accept secure|all] [--port N]    be a node: what modprobe lnet_selftest is for Lustre
  new_session [--timeout S] [--force] NAME  end_session, show_session
  add_group NAME NID...                     list_group [NAME...], update_group --remove NIDS|--refresh NAME, del_group NAME
  add_batch [NAME]                          list_batch [NAME], del_batch NAME
  add_test [--batch B] [--loop N] [--concurrency C] [--distribute S:D] --from GROUP --to GROUP ping
  add_test ... brw [read|write] [check=none|simple|full] [size=4K..1M]
  run [B], stop [B], query [B]              begin, end, look at a batch
  stat [--bw] [--rate] [--read] [--write] [--avg] [--min] [--max] [--delay S] [--count N] GROUP|NIDS...
  ping [--session] [--group G] [--nodes NIDS], show_error [--session] GROUP...
";

/// The command: arguments behind `lst`, exit status.
pub fn main(args: &[OsString]) -> i32 {
    let words: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let Some(command) = words.first().map(String::as_str) else {
        eprint!("{USAGE}");
        return admin::EXIT_USAGE;
    };
    if ["help", "--help", "-h"].contains(&command) {
        print!("{USAGE}");
        return 0;
    }
    let done = match command {
        "serve" => serve(&args[1..]),
        other => commands::run(other, &args[1..]),
    };
    admin::output::flush();
    match done {
        Ok(()) => 0,
        Err(Failure::Usage(why)) => {
            eprintln!("lst {command}: {why}\n\n{USAGE}");
            admin::EXIT_USAGE
        }
        Err(e) => {
            eprintln!("lst {command}: {e}");
            1
        }
    }
}

/// What went wrong, in words alone.
fn failed(text: impl Into<String>) -> Failure {
    Failure::Op { text: text.into(), errno: model::Errno::EIO }
}

/// A node, until it is ended.
fn serve(args: &[OsString]) -> Result<(), Failure> {
    use admin::getopt::{self, value};
    let p = getopt::parse(args, &[value('\0', "accept"), value('p', "port"), value('\0', "nid")])?;
    let secure = match p.value("accept").unwrap_or("secure") {
        "secure" => true,
        "all" => false,
        other => return Err(Failure::usage(format!("--accept {other}: secure or all"))),
    };
    let port = match p.value("port") {
        Some(text) => console::port(Some(text)),
        None => console::port_here(),
    };
    let port = port.map_err(failed)?;
    let addr = match p.value("nid") {
        None => std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        Some(nid) => nid.parse::<model::Nid>().map_err(|e| Failure::usage(e.to_string()))?.addr,
    };
    crate::in_real_world(|world| async move {
        let node = node::Node::new(&world, secure);
        node.serve(std::net::SocketAddr::new(addr, port), |at| {
            admin::say!("lst: a node at {at}");
            admin::output::flush();
        })
        .await
    })
    .map_err(failed)
}
