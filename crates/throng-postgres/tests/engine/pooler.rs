//! A pooler between the engine and the server.

use crate::kit;
use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};
use throng_postgres::open_postgres;

type Sessions = Arc<Mutex<VecDeque<TcpStream>>>;

/// Reads a message after the first: its type, and all its bytes.
fn message(from: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut all = head.to_vec();
    all.resize(1 + length, 0);
    from.read_exact(&mut all[5..]).ok()?;
    Some((head[0], all))
}

/// Opens a session for a client, and forwards the authentication.
fn let_in(client: &mut TcpStream, server: u16) -> Option<TcpStream> {
    let mut length = [0; 4];
    client.read_exact(&mut length).ok()?;
    let mut first = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut first).ok()?;
    let mut session = TcpStream::connect(("127.0.0.1", server)).ok()?;
    session.write_all(&[&length[..], &first].concat()).ok()?;
    loop {
        let (kind, all) = message(&mut session)?;
        client.write_all(&all).ok()?;
        match kind {
            b'Z' => return Some(session),
            // The server sent a challenge.
            b'R' if [10, 11].contains(&all[8]) => session.write_all(&message(client)?.1).ok()?,
            _ => {}
        }
    }
}

/// Gives each transaction of a client the session that was idle longest, as pgbouncer does with `pool_mode=transaction`.
fn pool(mut client: TcpStream, server: u16, free: &Sessions) -> Option<()> {
    let sessions = || free.lock().unwrap_or_else(PoisonError::into_inner);
    let own = let_in(&mut client, server)?;
    sessions().push_back(own);
    let mut used = None::<TcpStream>;
    loop {
        let (kind, all) = message(&mut client)?;
        if kind == b'X' {
            return None;
        }
        let mut session = match used.take() {
            Some(session) => session,
            None => sessions().pop_front()?,
        };
        session.write_all(&all).ok()?;
        if matches!(kind, b'Q' | b'S') && answer(&mut session, &mut client)? {
            sessions().push_back(session);
        } else {
            used = Some(session);
        }
    }
}

/// Forwards an answer. Returns true if no transaction is open after it.
fn answer(session: &mut TcpStream, client: &mut TcpStream) -> Option<bool> {
    loop {
        let (kind, all) = message(session)?;
        client.write_all(&all).ok()?;
        if kind == b'Z' {
            return Some(all[5] == b'I');
        }
    }
}

#[test]
fn pooler_of_transactions_is_refused_and_named() {
    let (server, listener) = (kit::SERVER.port(), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let free = Sessions::default();
        for client in listener.incoming().map_while(Result::ok) {
            let free = Arc::clone(&free);
            thread::spawn(move || pool(client, server, &free));
        }
    });
    let url = kit::url(&kit::SERVER, &kit::schema(), "sslmode=disable");
    let url = url.replace(&format!(":{server}/"), &format!(":{port}/"));
    let said = open_postgres(url.parse().unwrap()).unwrap_err().to_string();
    assert!(
        said.contains("pool_mode=transaction") && said.contains("name the server itself"),
        "{said}"
    );
}
