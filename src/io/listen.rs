//! Listening sockets: one per data core on the same address, between which the kernel spreads new connections.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::fatal::Reason;

/// Connections that may wait to be accepted; the kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// Listens on an address with `count` sockets and says on which one (port 0 takes a free port).
///
/// # Errors
/// `Reason::Port` when another process has it, or it is not an address of this host.
pub fn listen(address: SocketAddr, count: usize) -> Result<(Vec<OwnedFd>, SocketAddr), Reason> {
    let refused = |error: std::io::Error| {
        Reason::Port(format!("cannot listen on {address}: {error}; stop what uses it or choose another with --listen"))
    };
    assert!(count > 0, "no listener asked for");
    // The first socket binds without SO_REUSEPORT: else a second broker of the same user would share the port unseen.
    let first = bound(address, false).map_err(refused)?;
    let actual = first.local_addr().map_err(refused)?.as_socket().unwrap_or(address);
    first.set_reuse_port(true).map_err(refused)?;
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(bound(actual, true).map_err(refused)?);
    }
    for socket in &sockets {
        socket.listen(BACKLOG).map_err(refused)?;
    }
    Ok((sockets.into_iter().map(OwnedFd::from).collect(), actual))
}

/// A bound socket. Accepted ones inherit TCP_NODELAY from it.
fn bound(address: SocketAddr, shared: bool) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.cloexec(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn several_sockets_share_one_port_and_a_second_process_is_refused() {
        let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
        let (sockets, address) = listen(loopback, 3).expect("listen");
        assert_eq!(sockets.len(), 3);
        assert_ne!(address.port(), 0);
        TcpStream::connect(address).expect("connect");
        let refused = listen(address, 1).expect_err("taken");
        assert_eq!(refused.status(), 12);
        assert!(refused.to_string().contains(&address.to_string()), "{refused}");
        drop(sockets);
        listen(address, 2).expect("free again");
    }
}
