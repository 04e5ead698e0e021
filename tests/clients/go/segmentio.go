package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// segmentio is segmentio/kafka-go.
type segmentio struct {
	bootstrap string
	client    *kafka.Client
}

func newSegmentio(bootstrap string) (adapter, error) {
	return segmentio{bootstrap, &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: patience}}, nil
}

// The client has no idempotent producer.
func (segmentio) idempotence() bool { return false }

func (s segmentio) create(topic string) error {
	created, err := s.client.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}}})
	if err != nil {
		return err
	}
	return created.Errors[topic]
}

func (s segmentio) write(topic string, records []record, codec, acks string, _ bool) ([]int64, error) {
	offsets := make([]int64, len(records))
	var lock sync.Mutex
	writer := &kafka.Writer{
		Addr: kafka.TCP(s.bootstrap), Topic: topic, BatchTimeout: 5 * time.Millisecond, BatchSize: len(records),
		Compression:  map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}[codec],
		RequiredAcks: map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}[acks],
		Balancer:     kafka.BalancerFunc(func(message kafka.Message, _ ...int) int { return int(records[message.WriterData.(int)].partition) }),
		Completion: func(messages []kafka.Message, _ error) {
			lock.Lock()
			defer lock.Unlock()
			for _, message := range messages {
				offsets[message.WriterData.(int)] = message.Offset
			}
		},
	}
	var sent []kafka.Message
	for at, one := range records {
		message := kafka.Message{Key: one.key, Value: one.value, Time: time.UnixMilli(one.timestamp), WriterData: at}
		for _, each := range one.headers {
			message.Headers = append(message.Headers, kafka.Header{Key: each.key, Value: each.value})
		}
		sent = append(sent, message)
	}
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := errors.Join(writer.WriteMessages(within, sent...), writer.Close())
	return offsets, err
}

func (s segmentio) read(topic string, first map[int32]int64, count int) ([]record, error) {
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var found []record
	for partition, offset := range first {
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{s.bootstrap}, Topic: topic, Partition: int(partition),
			MaxWait: 20 * time.Millisecond, MaxBytes: 10 << 20, MaxAttempts: 1})
		err := reader.SetOffset(offset)
		for left := count / len(first); left > 0 && err == nil; left-- {
			var one kafka.Message
			if one, err = reader.ReadMessage(within); err == nil {
				found = append(found, fromMessage(one))
			}
		}
		if closed := reader.Close(); err != nil || closed != nil {
			return found, errors.Join(err, closed)
		}
	}
	return found, nil
}

func fromMessage(one kafka.Message) record {
	seen := record{int32(one.Partition), one.Offset, one.Time.UnixMilli(), one.Key, one.Value, nil}
	for _, each := range one.Headers {
		seen.headers = append(seen.headers, header{each.Key, each.Value})
	}
	return seen
}

func (s segmentio) offsetAt(topic string, partition int32, ms int64) (int64, error) {
	found, err := s.listOffsets(topic, kafka.TimeOffsetOf(int(partition), time.UnixMilli(ms)))
	if err != nil {
		return 0, err
	}
	for offset := range found.Offsets {
		return offset, nil
	}
	return -1, nil
}

func (s segmentio) bounds(topic string, partition int32) ([2]int64, error) {
	found, err := s.listOffsets(topic, kafka.FirstOffsetOf(int(partition)), kafka.LastOffsetOf(int(partition)))
	return [2]int64{found.FirstOffset, found.LastOffset}, err
}

func (s segmentio) listOffsets(topic string, requests ...kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
	answered, err := s.client.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: requests}})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	if len(answered.Topics[topic]) != 1 {
		return kafka.PartitionOffsets{}, fmt.Errorf("%d partitions in the answer", len(answered.Topics[topic]))
	}
	found := answered.Topics[topic][0]
	return found, found.Error
}

func (s segmentio) admin(topic string, _ int64) error {
	within := context.Background()
	grown, err := s.client.CreatePartitions(within, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 5}}})
	if err != nil {
		return err
	}
	altered, err := s.client.IncrementalAlterConfigs(within, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "3600000", ConfigOperation: kafka.ConfigOperationSet}}}}})
	if err != nil {
		return err
	}
	if err := errors.Join(grown.Errors[topic], altered.Resources[0].Error); err != nil {
		return err
	}
	if err := eventually("partitions and retention.ms", "5 3600000", func() (string, error) { return s.described(topic) }); err != nil {
		return err
	}
	deleted, err := s.client.DeleteTopics(within, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return deleted.Errors[topic]
}

func (s segmentio) described(topic string) (string, error) {
	metadata, err := s.client.Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return "", err
	}
	configs, err := s.client.DescribeConfigs(context.Background(), &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"}}}})
	if err != nil {
		return "", err
	}
	if len(configs.Resources) != 1 || len(configs.Resources[0].ConfigEntries) != 1 {
		return "", errors.New("not one setting in the answer")
	}
	return fmt.Sprint(len(metadata.Topics[0].Partitions), " ", configs.Resources[0].ConfigEntries[0].ConfigValue), nil
}
