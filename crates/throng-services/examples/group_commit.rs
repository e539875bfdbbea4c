//! A use of batches: a service that writes lines to a file, syncs once for all that came together, and only then answers.
//!
//! `cargo run -p throng-services --example group_commit`

use std::{
    fs::File,
    io::{self, Write},
    thread,
    time::Duration,
};
use throng_services::{Context, Reply, Service, service};

struct Lines {
    file: File,
    written: Vec<u8>,
    /// The replies that wait for the sync.
    waiting: Vec<Reply<()>>,
    syncs: u64,
}

enum Message {
    Write(String, Reply<()>),
    Syncs(Reply<u64>),
}

impl Lines {
    /// Writes and syncs once, then answers all. On an error the replies are dropped, and each asker is told so.
    fn commit(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        self.file.write_all(&self.written)?;
        self.written.clear();
        self.file.sync_data()?;
        self.syncs += 1;
        waiting.into_iter().for_each(|reply| reply.send(()));
        Ok(())
    }
}

impl Service for Lines {
    type Message = Message;

    fn receive(&mut self, message: Message, _: &mut Context<Message>) {
        match message {
            Message::Write(line, reply) => {
                self.written.extend_from_slice(line.as_bytes());
                self.written.push(b'\n');
                self.waiting.push(reply);
            }
            Message::Syncs(reply) => reply.send(self.syncs),
        }
    }

    /// Commits in a surge, when there is always more: this many lines are enough for one sync.
    fn limit(&mut self, context: &mut Context<Message>) {
        self.empty(context);
    }

    /// Commits at a quiet moment: a line is a batch, and waits for nobody.
    fn empty(&mut self, context: &mut Context<Message>) {
        if let Err(error) = self.commit() {
            eprintln!("the lines cannot be written: {error}");
            context.stop();
        }
    }
}

/// Writes lines from several threads, and prints how many syncs they took.
pub(crate) fn main() {
    let path = std::env::temp_dir().join(format!("throng-services-{}.txt", std::process::id()));
    let file = File::create(&path).expect("the directory for temporary files can be written");
    let mut file = Some(file);
    let lines = move || Lines {
        file: file.take().expect("a service that is not restarted is made once"),
        written: Vec::new(),
        waiting: Vec::new(),
        syncs: 0,
    };
    let running = service("lines", lines).start().expect("there is a thread");
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let mut address = running.address();
            thread::spawn(move || {
                for n in 0..50 {
                    let written = address.ask(|reply| Message::Write(format!("{writer} {n}"), reply));
                    written.wait(Duration::from_secs(30)).expect("the line is on disk");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().expect("every line was written");
    }
    let syncs = running.address().ask(Message::Syncs).wait(Duration::from_secs(30));
    println!(
        "400 lines, durable one by one, in {} syncs",
        syncs.expect("the service runs")
    );
    running.stop();
    let text = std::fs::read_to_string(&path).expect("the file is there");
    assert_eq!(text.lines().count(), 400);
    std::fs::remove_file(&path).expect("the file was ours");
}
