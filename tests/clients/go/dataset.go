package main

import (
	"fmt"
	"strings"
)

const (
	partitions   = 3
	recordCount  = 60
	perPartition = recordCount / partitions
)

type header struct {
	key   string
	value []byte
}

// record is what is written and read; key and value may be nil, which differs from empty.
type record struct {
	partition         int32
	offset, timestamp int64
	key, value        []byte
	headers           []header
}

// newRecord is the data set of tests/clients/README.md: null keys, null values, a repeated and an empty header.
func newRecord(i, baseMs int64) record {
	one := record{partition: int32(i % partitions), offset: i / partitions, timestamp: baseMs + i*1000}
	if i%5 != 0 {
		one.key = fmt.Appendf(nil, "key-%d", i)
	}
	if one.key == nil || i%7 != 3 {
		one.value = fmt.Appendf(nil, "value-%d-%s", i, strings.Repeat("x", int(i*37%200)))
	}
	one.headers = []header{{"n", fmt.Append(nil, i)}, {"n", []byte("again")}, {"empty", []byte{}}}
	return one
}

// String shows null and empty apart, except in headers, where these clients read both as nil; they write them apart.
func (r record) String() string {
	text := fmt.Sprintf("%d:%d @%d %s=%s", r.partition, r.offset, r.timestamp, orNull(r.key), orNull(r.value))
	for _, one := range r.headers {
		text += fmt.Sprintf(" %s=%s", one.key, one.value)
	}
	return text
}

func orNull(bytes []byte) string {
	if bytes == nil {
		return "null"
	}
	return fmt.Sprintf("%q", bytes)
}
