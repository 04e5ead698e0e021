//! Reads `tests/frames/kafka-4.4.tsv`.

use std::fmt;

use pinion::kafka::api::ApiKey;

/// One request of an unchanged client and Kafka's response, without their length fields.
pub struct Exchange {
    pub name: String,
    pub api: ApiKey,
    pub version: i16,
    pub client: String,
    pub request: Vec<u8>,
    pub response: Vec<u8>,
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} v{} of {}", self.name, self.version, self.client)
    }
}

/// All captured exchanges.
pub fn exchanges() -> Vec<Exchange> {
    let lines = include_str!("../frames/kafka-4.4.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.map(exchange).collect()
}

fn exchange(line: &str) -> Exchange {
    let columns: Vec<&str> = line.split('\t').collect();
    let [name, key, version, client, request, response] = columns[..] else { panic!("six columns: {line}") };
    Exchange {
        name: name.to_string(),
        api: ApiKey(key.parse().expect("a key")),
        version: version.parse().expect("a version"),
        client: client.to_string(),
        request: base64(request),
        response: base64(response),
    }
}

fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut have) = (Vec::new(), 0u32, 0);
    for byte in text.bytes().filter(|&byte| byte != b'=') {
        let digit = DIGITS.iter().position(|&digit| digit == byte).expect("a base64 digit");
        bits = bits << 6 | digit as u32;
        have += 6;
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    out
}
