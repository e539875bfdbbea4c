//! The command `dead-letters`: sends the rides again that no consumer could take.

use super::{DEAD, environment};
use std::process::ExitCode;
use throng_amqp::{ResendOptions, ResendReport, resend};
use throng_app::clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

pub(crate) fn command() -> Command {
    let number = |name, value, default, help| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .default_value(default)
            .value_parser(value_parser!(u32).range(1..))
            .help(help)
    };
    Command::new("dead-letters")
        .about("Send the rides again that no consumer could take: from the queue skiers-dead of SKIERS_BROKER to the queue they were in")
        .arg(
            Arg::new("reason")
                .long("reason")
                .value_name("TEXT")
                .help("Only those whose reason contains this text, for example expired"),
        )
        .arg(number("max", "N", "10000", "Letters sent at most"))
        .arg(number("times", "N", "1", "A letter that was sent again so often and is dead again stays"))
        .arg(
            Arg::new("dry-run")
                .long("dry-run")
                .action(ArgAction::SetTrue)
                .help("Only say what would be done"),
        )
}

/// Sends the rides again, and reports on standard output.
pub(crate) fn run(arguments: &ArgMatches) -> anyhow::Result<ExitCode> {
    let environment = environment(|name| std::env::var(name).ok())?;
    let number = |name| arguments.get_one::<u32>(name).copied().unwrap_or(1);
    let options = ResendOptions {
        reason: arguments.get_one::<String>("reason").cloned(),
        sent_max: usize::try_from(number("max")).unwrap_or(usize::MAX),
        times_max: number("times"),
        dry_run: arguments.get_flag("dry-run"),
        ..ResendOptions::new(environment.broker, DEAD)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ResendReport { sent, left } = runtime.block_on(resend(&options))?;
    let sent_as = if options.dry_run { "would be sent" } else { "sent" };
    for (queue, count) in &sent {
        println!("{count} {sent_as} again to the queue {queue}");
    }
    for (why, count) in &left {
        println!("{count} left in {DEAD}: {why}");
    }
    if sent.is_empty() && left.is_empty() {
        println!("{DEAD} is empty");
    }
    Ok(ExitCode::SUCCESS)
}
