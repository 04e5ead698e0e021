package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franz is franz-go: kgo for records, kadm for the rest.
type franz struct {
	bootstrap string
	admins    *kadm.Client
}

func newFranz(bootstrap string) (adapter, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	return franz{bootstrap, kadm.NewClient(client)}, err
}

func (franz) idempotence() bool { return true }

func (f franz) create(topic string) error {
	_, err := f.admins.CreateTopic(context.Background(), partitions, 1, nil, topic)
	return err
}

func (f franz) write(topic string, records []record, codec, acks string, idempotent bool) ([]int64, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(f.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5 * time.Millisecond),
		kgo.ProducerBatchCompression(map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
			"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[codec]),
		kgo.RequiredAcks(map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}[acks]),
	}
	if !idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var sent []*kgo.Record
	for _, one := range records {
		record := &kgo.Record{Topic: topic, Partition: one.partition, Timestamp: time.UnixMilli(one.timestamp), Key: one.key, Value: one.value}
		for _, header := range one.headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.key, Value: header.value})
		}
		sent = append(sent, record)
	}
	var offsets []int64
	for at, result := range client.ProduceSync(within, sent...) {
		if result.Err != nil {
			return nil, result.Err
		}
		offsets = append(offsets, sent[at].Offset)
	}
	return offsets, nil
}

func (f franz) read(topic string, first map[int32]int64, count int) ([]record, error) {
	from := map[int32]kgo.Offset{}
	for partition, offset := range first {
		from[partition] = kgo.NewOffset().At(offset)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap), kgo.FetchMaxWait(20*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var found []record
	for len(found) < count {
		fetches := client.PollFetches(within)
		if within.Err() != nil {
			break
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(one *kgo.Record) {
			seen := record{one.Partition, one.Offset, one.Timestamp.UnixMilli(), one.Key, one.Value, nil}
			for _, each := range one.Headers {
				seen.headers = append(seen.headers, header{each.Key, each.Value})
			}
			found = append(found, seen)
		})
	}
	return found, nil
}

func (f franz) offsetAt(topic string, partition int32, ms int64) (int64, error) {
	listed, err := f.admins.ListOffsetsAfterMilli(context.Background(), ms, topic)
	if err != nil {
		return 0, err
	}
	found, _ := listed.Lookup(topic, partition)
	// kadm asks for the end when there is nothing after the time.
	if found.Err == nil && found.Offset == perPartition {
		return -1, nil
	}
	return found.Offset, found.Err
}

func (f franz) bounds(topic string, partition int32) ([2]int64, error) {
	start, err := f.admins.ListStartOffsets(context.Background(), topic)
	end, endErr := f.admins.ListEndOffsets(context.Background(), topic)
	if err := errors.Join(err, endErr, start.Error(), end.Error()); err != nil {
		return [2]int64{}, err
	}
	first, known := start.Lookup(topic, partition)
	last, _ := end.Lookup(topic, partition)
	if !known {
		return [2]int64{}, fmt.Errorf("no partition %d", partition)
	}
	return [2]int64{first.Offset, last.Offset}, nil
}

func (f franz) admin(topic string, baseMs int64) error {
	within, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	updated, err := f.admins.UpdatePartitions(within, 5, topic)
	if err := errors.Join(err, updated.Error()); err != nil {
		return err
	}
	if err := eventually("partitions", 5, func() (int, error) {
		listed, err := f.admins.ListTopics(within, topic)
		return len(listed[topic].Partitions), err
	}); err != nil {
		return err
	}
	value := "3600000"
	if _, err := f.admins.AlterTopicConfigs(within, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, topic); err != nil {
		return err
	}
	if err := eventually("retention.ms", value, func() (string, error) { return f.config(within, topic, "retention.ms") }); err != nil {
		return err
	}
	if err := f.deleteRecords(within, topic, baseMs); err != nil {
		return err
	}
	dirs, err := f.admins.DescribeAllLogDirs(within, nil)
	if err := errors.Join(err, equal("any log directory", true, len(dirs) > 0)); err != nil {
		return err
	}
	if _, err := f.admins.DeleteTopic(within, topic); err != nil {
		return err
	}
	return eventually("listed after its deletion", false, func() (bool, error) {
		listed, err := f.admins.ListTopics(within)
		return listed.Has(topic), err
	})
}

func (f franz) config(within context.Context, topic, name string) (string, error) {
	described, err := f.admins.DescribeTopicConfigs(within, topic)
	if err != nil {
		return "", err
	}
	for _, config := range described[0].Configs {
		if config.Key == name {
			return config.MaybeValue(), described[0].Err
		}
	}
	return "", described[0].Err
}

func (f franz) deleteRecords(within context.Context, topic string, baseMs int64) error {
	var records []record
	for i := range int64(9) {
		records = append(records, newRecord(i, baseMs))
	}
	if _, err := f.write(topic, records, "gzip", "all", false); err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 2, -1)
	deleted, err := f.admins.DeleteRecords(within, offsets)
	if err := errors.Join(err, deleted.Error()); err != nil {
		return err
	}
	found, err := f.bounds(topic, 0)
	return errors.Join(err, equal("bounds after deleting records", [2]int64{2, 3}, found))
}
