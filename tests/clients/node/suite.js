// kafkajs: arguments BOOTSTRAP BASE_MS PREFIX, one line a case on stdout, then `done`. It cannot read without a consumer
// group, so it only writes and asks for offsets; the read-back suite reads what it wrote.
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const lz4 = require('lz4js')
const { hash: xxh32 } = require('lz4js/xxh32')
const snappy = require('snappyjs')
const { ZstdCodec } = require('zstd-codec')

const [bootstrap, base, run] = process.argv.slice(2)
const BASE_MS = Number(base)
const PREFIX = `${run}-kafkajs-`
const [PARTITIONS, RECORDS, PATIENCE_MS] = [3, 60, 20000]
const PER_PARTITION = RECORDS / PARTITIONS
const TYPES = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD }

const kafka = new Kafka({ brokers: [bootstrap], clientId: 'kafkajs', logLevel: logLevel.NOTHING })
const admin = kafka.admin()

async function main() {
  await registerCodecs()
  await admin.connect()
  for (const codec of Object.keys(TYPES)) {
    for (const acks of ['0', '1', 'all']) {
      await report(`${codec}/${acks}`, () => write(`${codec}-${acks}`, codec, acks === 'all' ? -1 : Number(acks), false))
    }
  }
  await report('idempotent', () => write('idempotent', 'gzip', -1, true))
  await report('large', large)
  for (const codec of Object.keys(TYPES)) {
    await report(`by-time/${codec}`, () => byTime(`${PREFIX}${codec}-all`))
  }
  await report('admin', administer)
  await admin.disconnect()
  console.log('done')
}

// kafkajs has gzip only and takes the other codecs from outside.
async function registerCodecs() {
  const zstd = await new Promise((resolve) => ZstdCodec.run((loaded) => resolve(new loaded.Simple())))
  const codec = (compress) => () => ({ compress: async (encoder) => Buffer.from(compress(encoder.buffer)) })
  CompressionCodecs[CompressionTypes.Snappy] = codec((bytes) => snappy.compress(bytes))
  CompressionCodecs[CompressionTypes.LZ4] = codec(independentLz4)
  CompressionCodecs[CompressionTypes.ZSTD] = codec((bytes) => zstd.compress(bytes))
}

// lz4js does not say of its frames that their blocks are independent, which Kafka demands; a frame of one block is. The
// header is a magic number of four bytes, flags, block descriptor, and the second byte of their hash.
function independentLz4(bytes) {
  const frame = lz4.compress(bytes)
  frame[4] |= 0x20
  frame[6] = xxh32(0, frame, 4, 2) >> 8
  return frame
}

// The data set of tests/clients/README.md.
function message(i) {
  const key = i % 5 === 0 ? null : `key-${i}`
  const value = key && i % 7 === 3 ? null : `value-${i}-${'x'.repeat((i * 37) % 200)}`
  return { partition: i % PARTITIONS, key, value, headers: { n: [`${i}`, 'again'], empty: '' }, timestamp: `${BASE_MS + i * 1000}` }
}

async function write(name, codec, acks, idempotent) {
  const topic = await create(name)
  const messages = Array.from({ length: RECORDS }, (_, i) => message(i))
  const acknowledged = await send({ topic, messages, acks, compression: TYPES[codec] }, idempotent)
  if (acks !== 0) {
    const offsets = acknowledged.map(({ partition, baseOffset }) => `${partition}:${baseOffset}`).sort()
    equal('acknowledged base offsets', '0:0 1:0 2:0', offsets.join(' '))
  }
  for (let partition = 0; partition < PARTITIONS; partition++) {
    await eventually(`bounds of ${partition}`, `0..${PER_PARTITION}`, () => bounds(topic, partition))
  }
}

async function send(request, idempotent) {
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 })
  await producer.connect()
  try {
    return await producer.send(request)
  } finally {
    await producer.disconnect()
  }
}

async function large() {
  const topic = await create('large')
  const value = Buffer.from(Array.from({ length: 900000 }, (_, at) => at % 251))
  const [acknowledged] = await send({ topic, messages: [{ partition: 0, key: 'large', value }], acks: -1 }, false)
  equal('base offset', '0', acknowledged.baseOffset)
  equal('bounds', '0..1', await bounds(topic, 0))
}

async function byTime(topic) {
  const at = PER_PARTITION / 2
  for (const [second, expected] of [[-1, '0'], [at * PARTITIONS, '10 10 10'], [3000, '20']]) {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, BASE_MS + second * 1000)
    const offsets = found.sort((one, other) => one.partition - other.partition).map(({ offset }) => offset)
    // After all records this client asks for the end.
    equal(`offsets at second ${second}`, expected.includes(' ') ? expected : Array(PARTITIONS).fill(expected).join(' '), offsets.join(' '))
  }
}

async function administer() {
  const topic = await create('admin')
  equal('brokers', true, (await admin.describeCluster()).brokers.length > 0)
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
  await eventually('partitions', 5, async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length)
  const described = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }] })
  equal('retention.ms', '604800000', described.resources[0].configEntries[0].configValue)
  await send({ topic, messages: [0, 3, 6].map(message), acks: -1, compression: CompressionTypes.GZIP }, false)
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '2' }] })
  equal('bounds after deleting records', '2..3', await bounds(topic, 0))
  await admin.deleteTopics({ topics: [topic] })
  await eventually('listed after its deletion', false, async () => (await admin.listTopics()).includes(topic))
}

// A topic is known before its leaders serve it; a write with acks 0 in between would be lost, as it may be.
async function create(name) {
  const topic = PREFIX + name
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1 }] })
  for (let partition = 0; partition < PARTITIONS; partition++) {
    await eventually('bounds of a new partition', '0..0', () => bounds(topic, partition))
  }
  return topic
}

async function bounds(topic, partition) {
  const found = (await admin.fetchTopicOffsets(topic)).find((one) => one.partition === partition)
  return `${found.low}..${found.high}`
}

async function report(name, body) {
  try {
    await body()
    console.log(`ok ${name}`)
  } catch (failure) {
    console.log(`FAIL ${name}: ${String(failure).replace(/\s+/g, ' ')}`)
  }
}

function equal(what, expected, found) {
  if (expected !== found) throw new Error(`${what}: expected ${expected}, found ${found}`)
}

// Metadata follows an acknowledged change with a delay that nothing bounds; until then there may be no answer.
async function eventually(what, expected, ask) {
  const deadline = Date.now() + PATIENCE_MS
  const answer = async () => {
    try {
      return await ask()
    } catch (failure) {
      return failure
    }
  }
  let found = await answer()
  while (found !== expected && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 50))
    found = await answer()
  }
  equal(what, expected, found)
}

main().catch((failure) => {
  console.error(failure)
  process.exit(1)
})
