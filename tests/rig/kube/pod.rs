//! The program in the rig's pods. It is linked statically, so that its image needs no other file.
//!
//! `pod` waits for ever, as the pause container of a pod does.
//! `pod PORT` answers every HTTP request with its host name.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    thread,
};

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;
const IGNORE: usize = 1;

unsafe extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
    fn pause() -> i32;
    fn _exit(code: i32) -> !;
}

extern "C" fn end(_signal: i32) {
    // SAFETY: _exit is one of the few functions that a signal handler may call.
    unsafe { _exit(0) }
}

fn main() -> io::Result<()> {
    // The first process of a container gets no signal for which it has no handler. It is the parent of orphans, which
    // the kernel reaps if it ignores SIGCHLD. SAFETY: no other thread runs yet, and `end` is a function of the type
    // that signal(2) wants.
    unsafe {
        signal(SIGINT, end as *const () as usize);
        signal(SIGTERM, end as *const () as usize);
        signal(SIGCHLD, IGNORE);
    }
    match std::env::args().nth(1) {
        Some(port) => serve(&port),
        None => loop {
            // SAFETY: pause(2) has no arguments and touches no memory.
            unsafe { pause() };
        },
    }
}

fn serve(port: &str) -> io::Result<()> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    for connection in TcpListener::bind(format!("[::]:{port}"))?.incoming() {
        let (connection, host) = (connection?, host.clone());
        // Errors do not matter: a client can close the connection at any time.
        thread::spawn(move || answer(connection, &host));
    }
    Ok(())
}

fn answer(connection: TcpStream, host: &str) -> io::Result<()> {
    let mut request = BufReader::new(connection);
    let mut line = String::new();
    // The header of a request ends with an empty line, which is two bytes. The tests send no body.
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    let length = host.len();
    write!(
        request.get_mut(),
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{host}"
    )
}
