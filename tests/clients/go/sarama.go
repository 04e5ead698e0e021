package main

import (
	"errors"
	"time"

	"github.com/IBM/sarama"
)

// saramaClient is IBM/sarama.
type saramaClient struct {
	bootstrap []string
	client    sarama.Client
	admins    sarama.ClusterAdmin
}

func newSarama(bootstrap string) (adapter, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.MaxWaitTime = 20 * time.Millisecond
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return nil, err
	}
	admins, err := sarama.NewClusterAdminFromClient(client)
	return saramaClient{[]string{bootstrap}, client, admins}, err
}

func (saramaClient) idempotence() bool { return true }

func (s saramaClient) create(topic string) error {
	if err := s.admins.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false); err != nil {
		return err
	}
	return eventually("partitions", partitions, func() (int, error) {
		if err := s.client.RefreshMetadata(topic); err != nil {
			return 0, err
		}
		known, err := s.client.Partitions(topic)
		return len(known), err
	})
}

func (s saramaClient) write(topic string, records []record, codec, acks string, idempotent bool) ([]int64, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	config.Producer.Compression = map[string]sarama.CompressionCodec{"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD}[codec]
	config.Producer.RequiredAcks = map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}[acks]
	if idempotent {
		config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
	}
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	if err != nil {
		return nil, err
	}
	var sent []*sarama.ProducerMessage
	for _, one := range records {
		message := &sarama.ProducerMessage{Topic: topic, Partition: one.partition, Timestamp: time.UnixMilli(one.timestamp)}
		if one.key != nil {
			message.Key = sarama.ByteEncoder(one.key)
		}
		if one.value != nil {
			message.Value = sarama.ByteEncoder(one.value)
		}
		for _, each := range one.headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(each.key), Value: each.value})
		}
		sent = append(sent, message)
	}
	err = errors.Join(producer.SendMessages(sent), producer.Close())
	var offsets []int64
	for _, message := range sent {
		offsets = append(offsets, message.Offset)
	}
	return offsets, err
}

func (s saramaClient) read(topic string, first map[int32]int64, count int) ([]record, error) {
	consumer, err := sarama.NewConsumerFromClient(s.client)
	if err != nil {
		return nil, err
	}
	messages := make(chan *sarama.ConsumerMessage, 1024)
	for partition, offset := range first {
		of, err := consumer.ConsumePartition(topic, partition, offset)
		if err != nil {
			return nil, err
		}
		go func() {
			for message := range of.Messages() {
				messages <- message
			}
		}()
		defer of.AsyncClose()
	}
	var found []record
	for deadline := time.After(patience); len(found) < count; {
		select {
		case one := <-messages:
			seen := record{one.Partition, one.Offset, one.Timestamp.UnixMilli(), one.Key, one.Value, nil}
			for _, each := range one.Headers {
				seen.headers = append(seen.headers, header{string(each.Key), each.Value})
			}
			found = append(found, seen)
		case <-deadline:
			return found, nil
		}
	}
	return found, nil
}

func (s saramaClient) offsetAt(topic string, partition int32, ms int64) (int64, error) {
	return s.client.GetOffset(topic, partition, ms)
}

func (s saramaClient) bounds(topic string, partition int32) ([2]int64, error) {
	first, err := s.client.GetOffset(topic, partition, sarama.OffsetOldest)
	end, endErr := s.client.GetOffset(topic, partition, sarama.OffsetNewest)
	return [2]int64{first, end}, errors.Join(err, endErr)
}

func (s saramaClient) admin(topic string, baseMs int64) error {
	if err := s.admins.CreatePartitions(topic, 5, nil, false); err != nil {
		return err
	}
	if err := eventually("partitions", 5, func() (int, error) {
		described, err := s.admins.DescribeTopics([]string{topic})
		if err != nil {
			return 0, err
		}
		return len(described[0].Partitions), nil
	}); err != nil {
		return err
	}
	value := "3600000"
	change := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}
	if err := s.admins.IncrementalAlterConfig(sarama.TopicResource, topic, change, false); err != nil {
		return err
	}
	if err := eventually("retention.ms", value, func() (string, error) {
		described, err := s.admins.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
		if err != nil || len(described) != 1 {
			return "", err
		}
		return described[0].Value, nil
	}); err != nil {
		return err
	}
	if _, err := s.write(topic, []record{newRecord(0, baseMs), newRecord(3, baseMs), newRecord(6, baseMs)}, "gzip", "all", false); err != nil {
		return err
	}
	if err := s.admins.DeleteRecords(topic, map[int32]int64{0: 2}); err != nil {
		return err
	}
	found, err := s.bounds(topic, 0)
	if err := errors.Join(err, equal("bounds after deleting records", [2]int64{2, 3}, found), s.admins.DeleteTopic(topic)); err != nil {
		return err
	}
	return eventually("listed after its deletion", false, func() (bool, error) {
		listed, err := s.admins.ListTopics()
		_, present := listed[topic]
		return present, err
	})
}
