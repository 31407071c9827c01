/**
 * The command line of `verbena`: commands and their options. A command's modules are loaded when it
 * runs: all of them cost 65 ms of processor time, and most need few.
 */
import { Option, type Command } from 'commander';
import { ROCE_PORT } from '../link/link.js';
import { NVME_RDMA_PORT } from '../nvme/constants.js';
import type { DecodeOptions } from './decode/decode.js';
import type { DemoOptions } from './demo.js';
import type { DevinfoOptions } from './devinfo.js';
import type { LayoutOptions } from './layout/layout.js';
import {
  RPING_BYTES_MAX,
  RPING_BYTES_MIN,
  STRESS_BYTES_MIN,
  STRESS_DEPTH_MAX,
  STRESS_TASKS_MAX,
} from './base/limits.js';
import {
  addDscpOption,
  addFaultOptions,
  addNamedPortOption,
  addPortOption,
  assignment,
  localAddress,
  mtu,
  seconds,
  size,
  whole,
} from './base/options.js';
import type { PingpongOptions } from './pingpong/pingpong.js';
import type { PoolTopOptions } from './pool-top.js';
import { addPskOptions } from './base/psk-file.js';
import { addNoTokenOption, addTokenOptions } from './file-transfer/access.js';
import type { NvmeTargetCliOptions } from './nvme-target/nvme-target.js';
import { addPerfOptions, perfTest, perfVerb } from './perf/options.js';
import type { PerfOptions, PerfTest, PerfVerb } from './perf/options.js';
import { addPut } from './put/command.js';
import type { RdsInfoOptions } from './rds/info.js';
import type { RdsPingOptions } from './rds/ping.js';
import type { RdsStressOptions } from './rds/stress.js';
import { begin, example, exitCodeOf, group, makeRoot, run } from './base/command.js';
import type { RpmaBenchOptions } from './rpma-bench/rpma-bench.js';
import type { RpingOptions } from './rping.js';
import { addRun } from './run/command.js';
import type { ShmemRunOptions } from './shmem/run.js';
import type { ServeOptions } from './serve/options.js';
import type { SniffOptions } from './sniff/sniff.js';
import type { DoctorOptions } from './doctor/doctor.js';
import type { TourOptions } from './tour/tour.js';

const DIRECTORY_HELP = 'directory of its file (default: the user’s own in /dev/shm)';

function addUdpPortOption(command: Command): Command {
  const description = 'UDP port of the local device; 0: a free one';
  return addPortOption(command, '--udp-port <port>', description, ROCE_PORT);
}

function addServe(program: Command): void {
  const command = begin(program, 'serve', 'receive files of "verbena put" into a directory')
    .option('--dir <directory>', 'directory of the received files', '.')
    .option('--bind <address>', 'local address; not a wildcard', localAddress, '127.0.0.1');
  addPortOption(command, '--port <port>', 'UDP port; 0: a free one', ROCE_PORT);
  addDscpOption(command)
    .addOption(
      new Option('--room <address>', 'receive from members of a room: ws://host:port/path#ROOM')
        // They are about UDP, or another service.
        .conflicts([
          'bind',
          'port',
          'dscp',
          'pmem',
          'pcap',
          'loss',
          'duplicate',
          'reorder',
          'corrupt',
        ]),
    )
    .option('--max-clients <number>', 'clients served at the same time', whole(1, 128), 8)
    .addOption(
      new Option('--window-bytes <size>', 'memory per client')
        .argParser(size(65536, 2 ** 28))
        .default(8 * 2 ** 20, '8M'),
    )
    .option('--quota <size>', 'limit for the bytes of all files in the directory', size(1, 2 ** 50))
    .option('--expire <hours>', 'hours until unfinished files are removed', whole(1, 8760), 168)
    .addOption(
      new Option('--pmem <file>', 'receive files of "put --pmem" into this persistent memory')
        // They are about files in a directory.
        .conflicts(['dir', 'maxClients', 'windowBytes', 'quota', 'expire']),
    )
    .option(
      '--pmem-bytes <size>',
      'size if the file is created (default: 64M)',
      size(65536, 2 ** 31),
    )
    .option('--pcap <file>', 'capture every packet')
    .option('--json', 'one JSON object per event');
  const key = 'key that clients prove (default: a random one unless --bind is loopback)';
  addNoTokenOption(addTokenOptions(command, key));
  addFaultOptions(addPskOptions(command))
    .addHelpText('after', example('verbena serve --dir incoming --bind 192.0.2.7'))
    .action((options: ServeOptions) =>
      run('serve', async () => (await import('./serve/serve.js')).serve(options)),
    );
}

/** Several sizes, or numbers, with commas between. */
function list(parse: (text: string) => number): (text: string) => number[] {
  return (text) => text.split(',').map(parse);
}

function addRpma(program: Command): void {
  const rpma = group(program, 'rpma', 'remote persistent memory: "rpma bench"');
  const command = begin(rpma, 'bench', 'compare local write and sync with remote write and flush')
    .option('--dir <directory>', 'directory of both files, on the disk to measure', '.')
    .option('--bind <address>', 'local address', localAddress, '127.0.0.1')
    .option('--sizes <list>', 'bytes per write', list(size(8, 2 ** 25)))
    .option('--depths <list>', 'writes in flight', list(whole(1, 1024)))
    .option('--seconds <seconds>', 'duration of each measurement', seconds, 1)
    .option('--jobs <file>', 'a job file of fio (librpma_apm_client, librpma_gpspm_client)')
    .option('--plot <file>', 'write the table as a plot (SVG)')
    .option('--json', 'one JSON object per line');
  addPskOptions(command)
    .addHelpText('after', example('verbena rpma bench --sizes 1k,4k --depths 1,32'))
    .action((options: RpmaBenchOptions) =>
      run('rpma bench', async () =>
        (await import('./rpma-bench/rpma-bench.js')).rpmaBench(options),
      ),
    );
}

/** `--port` and `-n` of packets. */
function addPacketOptions(command: Command): Command {
  return command
    .option('-n <number>', 'stop after this number of packets', whole(0, Number.MAX_SAFE_INTEGER))
    .option(
      '--port <port>',
      `UDP port of devices, again for more (default: ${ROCE_PORT}); ports of their peers follow`,
      (text: string, ports: number[] = []) => [...ports, whole(1, 65535)(text)],
    )
    .option('--json', 'one JSON object per packet');
}

interface PacketOptions {
  readonly n?: number;
  readonly port?: number[];
  readonly json?: boolean;
}

function packetOptions({ n, port, json }: PacketOptions): DecodeOptions {
  return {
    port: port ?? [ROCE_PORT],
    ...(n === undefined ? {} : { count: n }),
    ...(json === undefined ? {} : { json }),
  };
}

function addDecode(program: Command): void {
  const command = begin(
    program,
    'decode',
    'print one sentence per RoCEv2 packet of a pcap or pcapng file',
  ).argument('<file>', 'the capture; -: standard input');
  addPacketOptions(command)
    .addHelpText('after', example('verbena decode tour.pcapng | head'))
    .action((file: string, options: PacketOptions) =>
      run('decode', async () =>
        (await import('./decode/decode.js')).decode(file, packetOptions(options)),
      ),
    );
}

function addSniff(program: Command): void {
  const command = begin(
    program,
    'sniff',
    'print one sentence per RoCEv2 packet of this machine’s interfaces (Linux, CAP_NET_RAW)',
  )
    .option('-i, --interface <name>', 'network interface (default: all)')
    .option('--pcap <file>', 'capture every packet');
  addPacketOptions(command)
    .addHelpText('after', example('verbena sniff -i lo', 'verbena sniff --pcap all.pcapng'))
    .action((options: PacketOptions & Pick<SniffOptions, 'interface' | 'pcap'>) => {
      const { interface: name, pcap } = options;
      const more = { ...(name !== undefined && { interface: name }), ...(pcap && { pcap }) };
      return run('sniff', async () =>
        (await import('./sniff/sniff.js')).sniff({ ...packetOptions(options), ...more }),
      );
    });
}

function addPingpong(program: Command): void {
  const command = begin(
    program,
    'pingpong',
    'ping-pong messages, also with ibv_{rc,uc,ud,srq}_pingpong; without a host: the server',
  )
    .argument('[host]')
    .option('--rc', 'reliable connection (the default)')
    .option('--uc', 'unreliable connection')
    .option('--ud', 'unreliable datagrams')
    .option('--srq', 'reliable connections that share a receive queue');
  addNamedPortOption(command, '-p, --port <port>', 'TCP port of the server', 18515)
    .option('-s, --size <size>', 'bytes of a message (default: 4k, --ud 2k)', size(1, 2 ** 30))
    .option('-m, --mtu <bytes>', 'path MTU', mtu, 1024)
    .option('-r, --rx-depth <number>', 'receives posted at a time', whole(1, 32768), 500)
    .option('-n, --iters <number>', 'messages each way', whole(1, 2 ** 31), 1000)
    .option('-q, --num-qp <number>', 'queue pairs, with --srq (default: 16)', whole(1, 256))
    .option(
      '-g, --gid-idx <index>',
      'local address, by its index in the GID table',
      whole(0, 65535),
    )
    .option(
      '--bind <address>',
      'local address (default: the route to the peer; 127.0.0.2 if the peer is 127.0.0.1)',
      localAddress,
    )
    .option('-e, --events', 'wait for completion events instead of polling')
    .option('-c, --chk', 'compare the received bytes (both sides)')
    .option('--pcap <file>', 'capture every packet')
    .option('--json', 'print the result as JSON');
  addFaultOptions(addPskOptions(command))
    .addHelpText('after', example('verbena pingpong -c', 'verbena pingpong -c 192.0.2.7'))
    .action((host: string | undefined, options: PingpongOptions) =>
      run('pingpong', async () => (await import('./pingpong/pingpong.js')).pingpong(host, options)),
    );
}

function addOthers(program: Command): void {
  begin(program, 'devinfo', 'print link, addresses and limits of a device on this machine')
    .option('--bind <address>', 'local address of the device', localAddress, '127.0.0.1')
    .option('--name <name>', 'a device shared by processes: report its members and their resources')
    .option('--directory <directory>', `with --name: ${DIRECTORY_HELP}`)
    .option('--storage <directory>', 'directory: report the durability of its files', '.')
    .option('--json', 'print it as JSON')
    .addHelpText('after', example('verbena devinfo --json', 'verbena devinfo --name db'))
    .action((options: DevinfoOptions) =>
      run('devinfo', async () => (await import('./devinfo.js')).devinfo(options)),
    );
  begin(program, 'doctor', 'report what is fast on this machine, what is missing, and the remedy')
    .option('--json', 'print it as JSON')
    .addHelpText('after', example('verbena doctor'))
    .action((options: DoctorOptions) =>
      run('doctor', async () => (await import('./doctor/doctor.js')).doctor(options)),
    );
  const command = begin(
    program,
    'tour',
    'two processes on this machine: one puts a file into the other',
  )
    .argument('[file]', 'default: an installed file of at least 50 MB')
    .option('--pcap <file>', 'capture every packet')
    .option('--json', 'print the result as JSON');
  addFaultOptions(command)
    .addHelpText('after', example('verbena tour', 'verbena tour --loss 5 --pcap tour.pcap'))
    .action((file: string | undefined, options: TourOptions) =>
      run('tour', async () => (await import('./tour/tour.js')).tour(file, options)),
    );
}

function addPool(program: Command): void {
  const pool = group(program, 'pool', 'pools of memory regions: "pool top"');
  begin(pool, 'top', 'region pools of a shared device: regions per pool, process and user')
    .argument('<name>', 'name of the device: openDevice({ name })')
    .option('--directory <directory>', DIRECTORY_HELP)
    .option('-i, --interval <seconds>', 'time between reports', seconds, 1)
    .option('--once', 'print one report and end')
    .option('--json', 'one JSON object per report: pools, and events since the last report')
    .addHelpText('after', example('verbena pool top db', 'verbena pool top db --once --json'))
    .action((name: string, options: PoolTopOptions) =>
      run('pool top', async () => (await import('./pool-top.js')).poolTop(name, options)),
    );
}

function addShmem(program: Command): void {
  const shmem = group(program, 'shmem', 'OpenSHMEM programs: "shmem run"');
  begin(shmem, 'run', 'start the PEs of a program of verbena/shmem on this machine')
    .argument('<program>', 'a file for node (.js, .mjs, .ts), or a command')
    .argument('[arguments...]', 'its arguments')
    .option('-n <number>', 'number of PEs (default: 1)', whole(1, 256))
    .option(
      '--size <size>',
      'symmetric memory of each PE, such as 64M (default: 16M)',
      size(65536, 2 ** 31),
    )
    .passThroughOptions()
    .addHelpText('after', example('verbena shmem run -n 4 program.js'))
    .action((file: string, words: string[], options: ShmemRunOptions) =>
      run('shmem run', async () => (await import('./shmem/run.js')).shmemRun(file, words, options)),
    );
}

function addLayout(program: Command): void {
  begin(program, 'layout', 'draw the bytes of a memory layout, as SVG')
    .argument('<file>', 'JSON: areas, and a list sg or interleaved (host/guide/COMMANDS.md)')
    .option('-o, --output <file>', 'file of the drawing (default: standard output)')
    .option('--width <bytes>', 'bytes per row', whole(1, 1024), 64)
    .option('--json', 'print the origin of each byte instead')
    .addHelpText('after', example('verbena layout column.json -o column.svg'))
    .action((file: string, options: LayoutOptions) =>
      run('layout', async () => (await import('./layout/layout.js')).layout(file, options)),
    );
}

function addRping(program: Command): void {
  const command = begin(program, 'rping', 'RDMA ping-pong with verbena rping or rdma-core’s rping')
    .option('-s, --server', 'wait for a client')
    .option('-c, --client', 'connect to the server')
    .option('-a, --address <address>', 'the server’s address', '127.0.0.1')
    .option('-p, --port <port>', 'the server’s port', whole(1, 65535), 7174)
    .option('-S, --size <size>', 'bytes of a message', size(RPING_BYTES_MIN, RPING_BYTES_MAX), 64)
    .option(
      '-C, --count <number>',
      'messages (default: no limit)',
      whole(1, Number.MAX_SAFE_INTEGER),
    )
    .option('-v, --verbose', 'print each message')
    .option('-V, --validate', 'compare the returned bytes with the sent ones')
    .option('-P, --persistent', 'server: serve further clients after the first')
    .option('--json', 'one JSON object per event');
  addUdpPortOption(command);
  addNamedPortOption(command, '--peer-udp-port <port>', 'UDP port of the peer’s device', ROCE_PORT);
  addPskOptions(command)
    .addHelpText('after', example('verbena rping -c -a 192.0.2.7 -C 10 -V -v'))
    .action((options: RpingOptions) =>
      run('rping', async () => (await import('./rping.js')).rping(options)),
    );
}

function addRdsPing(program: Command): void {
  const command = begin(program, 'rds-ping', 'ping an RDS node of Verbena or Linux')
    .argument('<host>', 'address of the node')
    .option('-c, --count <number>', 'pings (default: no limit)', whole(1, 1_000_000))
    .option('-i, --interval <seconds>', 'time between pings', seconds, 1)
    .option('-I, --bind <address>', 'local address (default: the route to the host)', localAddress)
    .option('--json', 'one JSON object per ping');
  addUdpPortOption(command);
  addNamedPortOption(command, '--peer-udp-port <port>', 'UDP port of the peer’s device', ROCE_PORT);
  addPskOptions(command)
    .addHelpText('after', example('verbena rds-ping -c 5 192.0.2.7'))
    .action((host: string, options: RdsPingOptions) =>
      run('rds-ping', async () => (await import('./rds/ping.js')).rdsPing(host, options)),
    );
}

function addRdsStress(program: Command): void {
  const bytes = size(STRESS_BYTES_MIN, 2 ** 20);
  const command = begin(
    program,
    'rds-stress',
    'load between the RDS sockets of two verbena rds-stress (not rds-tools); without --send-addr: the passive side',
  )
    .option('-s, --send-addr <address>', 'address of the passive side')
    .option('-r, --recv-addr <address>', 'local address (default: the route to the peer)')
    .option(
      '-p, --port <port>',
      'TCP port; the tasks use the ports above it',
      whole(1, 65000),
      4000,
    )
    .option('-q, --req-bytes <size>', 'bytes per request', bytes, 1024)
    .option('-a, --ack-bytes <size>', 'bytes per answer', bytes, STRESS_BYTES_MIN)
    .option('-d, --depth <number>', 'requests in flight per task', whole(1, STRESS_DEPTH_MAX), 1)
    .option('-t, --tasks <number>', 'sockets per side', whole(1, STRESS_TASKS_MAX), 1)
    .option('-T, --time <seconds>', 'duration in seconds (default: no limit)', whole(1, 1_000_000))
    .option('-o, --one-way', 'only the active side sends requests')
    .option('-v, --verify', 'compare each received byte')
    .option('-c, --report-cpu', 'print the processor time of this process')
    .option('-z, --report-summary', 'with -T: print the summary only')
    .option('--connect-retries <number>', 'connection attempts after the first', whole(0, 1000), 0);
  addUdpPortOption(command);
  addPskOptions(command)
    .option('--json', 'one JSON object per row')
    .addHelpText('after', example('verbena rds-stress', 'verbena rds-stress -s 192.0.2.7 -T 10 -v'))
    .action((options: RdsStressOptions) =>
      run('rds-stress', async () => (await import('./rds/stress.js')).rdsStress(options)),
    );
}

function addRdsInfo(program: Command): void {
  begin(program, 'rds-info', 'print the state of this user’s RDS nodes on this machine')
    .option('-c, --counters', 'print counters')
    .option('-k, --sockets', 'print sockets')
    .option('-n, --connections', 'print connections')
    .option('--config', 'print parameters')
    .option('--stats', 'print statistics')
    .option('--set <parameter=value>', 'set a parameter of the running nodes', assignment)
    .option('--node <address>', 'only this node: address[:port]')
    .option('--json', 'one JSON object per report')
    .addHelpText('after', example('verbena rds-info', 'verbena rds-info --set RdsTraceLvl=0x1000'))
    .action((options: RdsInfoOptions) =>
      run('rds-info', async () => (await import('./rds/info.js')).rdsInfo(options)),
    );
}

function addDemo(program: Command): void {
  const command = begin(
    program,
    'demo',
    'serve a page whose tabs write into each other’s memory',
  ).option('--bind <address>', 'local address', '127.0.0.1');
  addPortOption(command, '--port <port>', 'TCP port; 0: a free one', 8080)
    .option(
      '--host-name <name>',
      'host name that browsers may use; repeatable (always allowed: IP addresses, localhost)',
      (name: string, names: string[] = []) => [...names, name],
    )
    .option('--json', 'one JSON object per event')
    .addHelpText('after', example('verbena demo', 'verbena demo --bind 192.0.2.7'))
    .action((options: DemoOptions) =>
      run('demo', async () => (await import('./demo.js')).demo(options)),
    );
}

function addPerf(program: Command): void {
  const command = begin(
    program,
    'perf',
    'bandwidth and latency, also with perftest’s ib_*; without a host: the server',
  )
    .argument('<verb>', 'write, read, send, atomic, flush or atomic-write', perfVerb)
    .argument('<test>', 'bw or lat', perfTest)
    .argument('[host]');
  addPskOptions(addPerfOptions(command))
    .addHelpText('after', example('verbena perf write bw', 'verbena perf write bw 192.0.2.7'))
    .action((verb: PerfVerb, test: PerfTest, host: string | undefined, options: PerfOptions) =>
      run('perf', async () => (await import('./perf/perf.js')).perf(verb, test, host, options)),
    );
}

function addNvme(program: Command): void {
  const command = begin(
    program,
    'nvme-target',
    'serve a file or memory as an NVMe namespace over RDMA ("nvme connect -t rdma")',
  )
    .argument('[file]', 'the bytes of the namespace')
    .option(
      '--ram <size>',
      'serve volatile memory of this size instead of a file',
      size(65536, 2 ** 31),
    )
    .option('--size <size>', 'create or extend the file to this size', size(4096, 2 ** 40))
    .option('--pmem', 'map the file as persistent memory: a completed flush is durable')
    .option('--bind <address>', 'local address; not a wildcard', localAddress, '127.0.0.1')
    .option('--nqn <name>', 'NQN of the subsystem')
    .option('--host-nqn <name...>', 'NQNs of the hosts that may connect (default: any)')
    .option(
      '--dhchap-file <file>',
      'DH-HMAC-CHAP secrets, a line per host: HOSTNQN SECRET [CONTROLLER-SECRET]; mode 0600',
    )
    .option('--dhchap-hash <name>', 'sha256, sha384 or sha512 (default: sha256)')
    .option('--dhchap-group <name>', 'null, or ffdhe2048 to ffdhe8192 (default: ffdhe2048)')
    .option('--medium <name>', 'emulate the latency of ssd, disk or hybrid (default: none)')
    .option('--block-bytes <bytes>', '512 or 4096', whole(512, 4096), 512);
  addPortOption(command, '--port <port>', 'port to which hosts connect', NVME_RDMA_PORT);
  addUdpPortOption(command)
    .option('--pcap <file>', 'capture every packet')
    .option('--json', 'one JSON object per event');
  addFaultOptions(addPskOptions(command))
    .addHelpText('after', example('verbena nvme-target disk.img --size 1G --bind 192.0.2.7'))
    .action((file: string | undefined, options: NvmeTargetCliOptions) =>
      run('nvme-target', async () =>
        (await import('./nvme-target/nvme-target.js')).nvmeTarget(file, options),
      ),
    );
}

/** The command line: every command, and what its words mean. */
export function makeProgram(): Command {
  const program = makeRoot();
  addServe(program);
  addPut(program);
  addRpma(program);
  addDecode(program);
  addSniff(program);
  addPingpong(program);
  addRping(program);
  addRdsPing(program);
  addRdsStress(program);
  addRdsInfo(program);
  addDemo(program);
  addPerf(program);
  addPool(program);
  addShmem(program);
  addLayout(program);
  addNvme(program);
  addRun(program);
  addOthers(program);
  return program;
}

export { exitCodeOf };
