//! The wire against what real clients and Apache Kafka 4.4 said to each other, and against damaged copies of it.

#[path = "wire/captured.rs"]
mod captured;
#[path = "wire/damage.rs"]
mod damage;
#[path = "wire/heap.rs"]
mod heap;

use captured::{Exchange, exchanges};
use pinion::kafka::api::ApiKey;
use pinion::kafka::frame;
use pinion::kafka::schema::Declared;

#[test]
fn captured_exchanges_decode_and_encode_back_byte_for_byte() {
    let exchanges = exchanges();
    assert_eq!(exchanges.len(), 306, "exchanges in the capture");
    for exchange in &exchanges {
        let declared = Declared::find(exchange.api.0).unwrap_or_else(|| panic!("{exchange} is not declared"));
        check_request(declared, exchange);
        check_response(declared, exchange);
    }
}

fn check_request(declared: &Declared, exchange: &Exchange) {
    let Exchange { api, version, request, .. } = exchange;
    let header = frame::request_header(request).expect("a real header");
    assert_eq!((header.api_key, header.api_version), (*api, *version));
    let mut again = Vec::new();
    frame::write_request_header(*api, *version, header.correlation_id, header.client_id, &mut again);
    let body = (declared.request)(*version, header.body(request));
    let body = body.unwrap_or_else(|fault| panic!("{exchange}, request: {fault}"));
    assert_eq!(body.bytes_left, bytes_behind_the_end(exchange, header.body(request)), "{exchange}, request");
    again.extend(&body.encoded);
    again.extend(&request[request.len() - body.bytes_left..]);
    assert!(again == *request, "{exchange}, request:\n{again:02x?}\n{request:02x?}");
}

/// librdkafka's Metadata requests for all topics end with three bytes that Kafka does not look at.
fn bytes_behind_the_end(exchange: &Exchange, body: &[u8]) -> usize {
    let for_all_topics = body.first() == Some(&0);
    let known = exchange.name == "Metadata" && exchange.version == 13 && exchange.client == "librdkafka";
    if known && for_all_topics { 3 } else { 0 }
}

fn check_response(declared: &Declared, exchange: &Exchange) {
    let Exchange { api, version, response, .. } = exchange;
    let (correlation_id, body) = frame::response_header(*api, *version, response).expect("a real header");
    let mut again = Vec::new();
    frame::write_response_header(*api, *version, correlation_id, &mut again);
    let body = (declared.response)(*version, body);
    let body = body.unwrap_or_else(|fault| panic!("{exchange}, response: {fault}"));
    assert_eq!(body.bytes_left, 0, "{exchange}, response");
    again.extend(&body.encoded);
    assert!(again == *response, "{exchange}, response:\n{again:02x?}\n{response:02x?}");
}

#[test]
fn every_served_api_occurs_in_the_captured_exchanges_or_is_known_not_to() {
    let occurs = |key: ApiKey| exchanges().iter().any(|exchange| exchange.api == key);
    let missing: Vec<&str> =
        pinion::kafka::api::TABLE.iter().filter(|row| !occurs(row.key)).map(|row| row.name).collect();
    assert_eq!(missing, ["DescribeLogDirs"]);
}
