//! A small blocking client for the commands that talk to a cluster: one connection, one request at a time, versions
//! agreed on with ApiVersions.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::cli::Failure;
use crate::kafka::api::ApiKey;
use crate::kafka::frame::{response_header, write_request_header};
use crate::kafka::schema::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use crate::kafka::schema::{Api, Message, Reader};

/// How long a server that is asked to do something may take; also sent along as `timeout_ms`.
pub const TIMEOUT_MS: i32 = 30_000;
/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest answer that is taken, in bytes: one that claims more is not Kafka's protocol.
const ANSWER_BYTES_MAX: usize = 256 << 20;
const CLIENT_ID: &str = "pinion-cli";

/// A connection to one broker.
pub struct Client {
    stream: TcpStream,
    address: String,
    served: Vec<ApiVersion>,
    correlation_id: i32,
}

/// An answer as received; messages borrow from it.
pub struct Answer {
    frame: Vec<u8>,
    api: ApiKey,
    name: &'static str,
    version: i16,
}

impl Client {
    /// Connects to the first of `bootstrap` (`host:port,…`) that answers.
    pub fn connect(bootstrap: &str) -> Result<Client, Failure> {
        let mut faults = Vec::new();
        for address in bootstrap.split(',').map(str::trim).filter(|address| !address.is_empty()) {
            match Client::open(address) {
                Ok(client) => return Ok(client),
                Err(fault) => faults.push(format!("{address}: {fault}")),
            }
        }
        match faults.is_empty() {
            true => Err(Failure::usage("--bootstrap names no broker")),
            false => Err(Failure::new(format!("no broker can be reached; {}", faults.join("; ")))),
        }
    }

    fn open(address: &str) -> Result<Client, String> {
        let resolved = address.to_socket_addrs().map_err(|error| error.to_string())?;
        let mut last = "the name has no address".to_string();
        for resolved in resolved {
            let stream = match TcpStream::connect_timeout(&resolved, CONNECT_TIMEOUT) {
                Ok(stream) => stream,
                Err(error) => {
                    last = error.to_string();
                    continue;
                }
            };
            // A server may use all of its time before it answers.
            let patience = Some(Duration::from_millis(TIMEOUT_MS as u64) + CONNECT_TIMEOUT);
            stream.set_read_timeout(patience).map_err(|error| error.to_string())?;
            stream.set_write_timeout(patience).map_err(|error| error.to_string())?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            let mut client = Client { stream, address: address.to_string(), served: Vec::new(), correlation_id: 0 };
            // Version 0 of this one is understood by every broker there is.
            let answer = client.exchange(0, &ApiVersionsRequest::default()).map_err(|failure| failure.message)?;
            let versions: ApiVersionsResponse = answer.decode().map_err(|failure| failure.message)?;
            client.served = versions.api_keys;
            return Ok(client);
        }
        Err(last)
    }

    /// Sends a request in the newest version that both sides know, and waits for the answer.
    pub fn call<'q, Q: Message<'q>>(&mut self, request: &Q) -> Result<Answer, Failure> {
        let version = self.version::<Q::Api>()?;
        self.exchange(version, request)
    }

    /// The newest version of an API that both sides know.
    pub fn version<A: Api>(&self) -> Result<i16, Failure> {
        let (address, name) = (&self.address, A::NAME);
        let Some(row) = self.served.iter().find(|row| row.api_key == A::KEY) else {
            return Err(Failure::new(format!("the broker at {address} does not serve {name}")));
        };
        let version = row.max_version.min(A::MAX);
        match version >= row.min_version.max(A::MIN) {
            true => Ok(version),
            false => Err(Failure::new(format!(
                "the broker at {address} serves {name} in versions {} to {}, this command speaks {} to {}",
                row.min_version,
                row.max_version,
                A::MIN,
                A::MAX
            ))),
        }
    }

    fn exchange<'q, Q: Message<'q>>(&mut self, version: i16, request: &Q) -> Result<Answer, Failure> {
        let (api, name) = (ApiKey(Q::Api::KEY), Q::Api::NAME);
        self.correlation_id += 1;
        let mut bytes = vec![0; 4];
        write_request_header(api, version, self.correlation_id, Some(CLIENT_ID), &mut bytes);
        request.encode(version, &mut bytes);
        let length =
            u32::try_from(bytes.len() - 4).map_err(|_| Failure::usage(format!("{name} would be too large")))?;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        let address = self.address.clone();
        let fault = |what: &str| Failure::new(format!("{name} to {address}: {what}"));
        self.stream.write_all(&bytes).map_err(|error| fault(&error.to_string()))?;
        let frame = self.read_frame().map_err(|error| fault(&error))?;
        let answer = Answer { frame, api, name, version };
        match answer.header() {
            Ok((correlation_id, _)) if correlation_id == self.correlation_id => Ok(answer),
            Ok(_) => Err(fault("the answer belongs to another request")),
            Err(failure) => Err(failure),
        }
    }

    fn read_frame(&mut self) -> Result<Vec<u8>, String> {
        let mut length = [0; 4];
        let told = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "the broker closed the connection".to_string(),
            std::io::ErrorKind::WouldBlock => format!("no answer within {} s", TIMEOUT_MS / 1000),
            _ => error.to_string(),
        };
        self.stream.read_exact(&mut length).map_err(told)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > ANSWER_BYTES_MAX {
            return Err(format!("an answer of {length} bytes is not Kafka's protocol"));
        }
        let mut frame = Vec::new();
        // Memory follows what arrives, not what was announced.
        (&mut self.stream).take(length as u64).read_to_end(&mut frame).map_err(told)?;
        match frame.len() == length {
            true => Ok(frame),
            false => Err("the broker closed the connection in the middle of an answer".to_string()),
        }
    }
}

impl Answer {
    /// Reads the message in it.
    pub fn decode<'a, R: Message<'a>>(&'a self) -> Result<R, Failure> {
        let (_, body) = self.header()?;
        R::decode(self.version, &mut Reader::new(body)).map_err(|error| self.unreadable(&error.to_string()))
    }

    fn header(&self) -> Result<(i32, &[u8]), Failure> {
        response_header(self.api, self.version, &self.frame).map_err(|fault| self.unreadable(&fault.to_string()))
    }

    fn unreadable(&self, why: &str) -> Failure {
        Failure::new(format!("the answer to {} cannot be read: {why}", self.name))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::thread::JoinHandle;

    use super::*;
    use crate::kafka::frame::{request_header, write_response_header};
    use crate::kafka::schema::metadata::{MetadataRequest, MetadataResponse};

    /// A broker that serves one connection: ApiVersions says `served`, everything else is answered by `answer`, which
    /// gets the API key, the version and the body of a request and appends the body of the response.
    pub(in crate::cli) fn broker(
        served: Vec<ApiVersion>,
        mut answer: impl FnMut(ApiKey, i16, &[u8], &mut Vec<u8>) + Send + 'static,
    ) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let serve = move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut length = [0; 4];
            while stream.read_exact(&mut length).is_ok() {
                let mut frame = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut frame).expect("a whole request");
                let header = request_header(&frame).expect("a header");
                let mut out = vec![0; 4];
                write_response_header(header.api_key, header.api_version, header.correlation_id, &mut out);
                if header.api_key == ApiKey::API_VERSIONS {
                    let versions = ApiVersionsResponse { api_keys: served.clone(), ..ApiVersionsResponse::default() };
                    versions.encode(header.api_version, &mut out);
                } else {
                    answer(header.api_key, header.api_version, header.body(&frame), &mut out);
                }
                let length = (out.len() - 4) as u32;
                out[..4].copy_from_slice(&length.to_be_bytes());
                stream.write_all(&out).expect("taken");
            }
        };
        (address, std::thread::spawn(serve))
    }

    fn metadata_up_to(max_version: i16) -> Vec<ApiVersion> {
        vec![ApiVersion { api_key: ApiKey::METADATA.0, min_version: max_version, max_version }]
    }

    fn failure(result: Result<Answer, Failure>) -> String {
        result.map(|_| ()).expect_err("a failure").message
    }

    #[test]
    fn the_newest_version_that_both_know_is_spoken() {
        let (address, _) = broker(metadata_up_to(9), |_, version, _, out| {
            assert_eq!(version, 9);
            MetadataResponse { cluster_id: Some("c"), ..MetadataResponse::default() }.encode(version, out);
        });
        let mut client = Client::connect(&format!("127.0.0.1:1, {address}")).expect("the second answers");
        let answer = client.call(&MetadataRequest::default()).expect("answered");
        assert_eq!(answer.decode::<MetadataResponse>().expect("readable").cluster_id, Some("c"));
    }

    #[test]
    fn a_broker_that_speaks_other_versions_or_apis_is_named() {
        let (address, _) = broker(metadata_up_to(99), |_, _, _, _| {});
        let mut client = Client::connect(&address.to_string()).expect("connected");
        assert!(
            failure(client.call(&MetadataRequest::default()))
                .contains("versions 99 to 99, this command speaks 0 to 13")
        );
        let (address, _) = broker(vec![], |_, _, _, _| {});
        let mut client = Client::connect(&address.to_string()).expect("connected");
        assert!(failure(client.call(&MetadataRequest::default())).ends_with("does not serve Metadata"));
    }

    #[test]
    fn garbage_and_a_closed_connection_are_failures_that_say_so() {
        let (address, _) = broker(metadata_up_to(9), |_, _, _, out| out.extend_from_slice(&[0xff; 9]));
        let mut client = Client::connect(&address.to_string()).expect("connected");
        let answer = client.call(&MetadataRequest::default()).expect("a frame");
        assert!(answer.decode::<MetadataResponse>().expect_err("garbage").message.contains("Metadata cannot be read"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let hang_up = std::thread::spawn(move || drop(listener.accept()));
        let refused = Client::connect(&address.to_string()).map(|_| ()).expect_err("closed").message;
        assert!(refused.starts_with("no broker can be reached; "), "{refused}");
        hang_up.join().expect("ended");
        assert_eq!(Client::connect(" ,").map(|_| ()).expect_err("nobody").status, 2);
    }
}
