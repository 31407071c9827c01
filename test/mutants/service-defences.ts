/** Defences of links, files, shared devices and NVMe: see defences.ts. */
import type { Changes } from './changes.js';

export const SERVICE_DEFENCES: Changes = {
  'host/demo/server.ts': [
    [
      'the demo serves foreign pages',
      'unit/demo/server',
      'if (refusal) refuse(response, refusal);',
      'if (false);',
    ],
  ],
  'host/demo/socket-echo.ts': [
    [
      'the echo keeps what its peer does not read',
      'unit/demo/server',
      'if (client.bufferedAmount >= BUFFERED_BYTES_MAX) client.pause();',
      '',
    ],
  ],
  'host/device/sharing/arena-lock.ts': [
    [
      'a thread waits for the tables’ lock without a timeout',
      'unit/device/sharing/thread-share',
      '      if (turn >= SPINS && !(timeout ??= new LockTimeout(this.#method.waitMillisMax)).nap()) {',
      '      if (turn >= SPINS && (timeout ??= new LockTimeout(this.#method.waitMillisMax)).nap() && false) {',
    ],
  ],
  'host/device/sharing/device-directory.ts': [
    [
      'another user has the directory of devices',
      'unit/device/sharing/device-directory',
      'if (!stat?.isDirectory() || stat.uid !== BigInt(user)) return [];',
      'if (!stat?.isDirectory()) return [];',
    ],
    [
      'a link leads the directory of devices elsewhere',
      'unit/device/sharing/device-directory',
      'if (!stat?.isDirectory() || stat.uid !== BigInt(user)) return [];',
      'if (!stat || stat.uid !== BigInt(user)) return [];',
    ],
    [
      'a directory of devices stays open to others',
      'unit/device/sharing/device-directory',
      'chmodSync(path, MODE);',
      '',
    ],
  ],
  'host/device/sharing/device-file.ts': [
    [
      'a damaged device file is opened',
      'shared/files',
      'header.ready !== 1 || header.checksum !== headerChecksum(bytes)',
      'header.ready !== 1',
    ],
  ],
  'host/link/channel/channel-frame.ts': [
    [
      'a packet reaches beyond its message',
      'unit/link/channel/channel-link',
      'if (at + length > message.length) return false;',
      '',
    ],
  ],
  'host/link/channel/channel-peer.ts': [
    [
      'a frame that asks for an acknowledgement gets none',
      'unit/link/channel/channel-link',
      `    if (flags & FrameFlag.ASK) connection.ackDue = true;
`,
      '',
    ],
  ],
  'host/link/channel/http-site.ts': [
    [
      'a request target that is no URL ends the process',
      'unit/link/channel/http-site',
      "  const path = url.split('?', 1)[0]!;",
      "  const path = new URL(url, 'http://server').pathname;",
    ],
    [
      'any host name is served, so that DNS rebinding makes a page one of ours',
      'unit/link/channel/http-site',
      'if (name !== undefined && !isOwnName(name) &&',
      'if (false &&',
    ],
    [
      'pages of other origins are answered',
      'unit/link/channel/http-site',
      'if (origin === undefined || origins.includes(origin)) return undefined;',
      'return undefined;',
    ],
  ],
  'host/link/capture/pcap-format.ts': [
    [
      'a record of a capture reaches beyond the file',
      'unit/link/capture/pcap-reader',
      'if (length > rest) {',
      'if (length > 2 ** 32) {',
    ],
  ],
  'host/link/capture/pcapng-format.ts': [
    [
      'a frame of a capture reaches beyond its block',
      'unit/link/capture/pcapng',
      'if (length > end - at - PACKET_BYTES_MIN) {',
      'if (false) {',
    ],
  ],
  'host/link/posix.ts': [
    [
      'forged ICMP messages shorten the path',
      'unit/link/udp/namespace',
      'PMTUDISC_PROBE = 3;',
      'PMTUDISC_PROBE = 2;',
    ],
  ],
  'host/link/private-file.ts': [
    [
      'a file of another user is opened',
      'unit/link/private-file',
      'if (uid !== user) {',
      'if (false) {',
    ],
  ],
  'host/link/signalling/candidates.ts': [
    [
      'an offer has any number of candidates',
      'unit/link/channel/http-site',
      ' && candidates++ < CANDIDATES_MAX',
      '',
    ],
  ],
  'host/link/signalling/http-server.ts': [
    [
      'an offer selects the destination of STUN datagrams',
      'unit/link/channel/http-site',
      'const own = withOwnCandidates(offer, remoteAddress, options.candidates);',
      'const own = offer;',
    ],
    [
      'one source makes any number of connections',
      'unit/link/channel/http-site',
      'if (!count.enter(remoteAddress, gid, peersPerSource, present)) {',
      'if (false) {',
    ],
  ],
  'host/link/signalling/session-count.ts': [
    [
      'peers that are connected do not count',
      'unit/link/channel/http-site',
      'isThere ? 1 : 0',
      '0',
    ],
  ],
  'host/link/source-shares.ts': [
    [
      'each address of a network is a source',
      'unit/link/channel/http-site',
      '.subarray(0, NETWORK_BYTES)',
      '',
    ],
  ],
  'host/nvme/dhchap-random.ts': [
    [
      'challenges are no chance',
      'unit/nvme/dhchap',
      'return randomBytes(bytes);',
      'return new Uint8Array(bytes);',
    ],
  ],
  'host/nvme/dhchap-response.ts': [
    [
      'a response does not depend on the sequence number',
      'unit/nvme/dhchap',
      'numbers.writeUInt32LE(sequence, 0);',
      '',
    ],
    [
      'a response of one side is one of the other side',
      'unit/nvme/dhchap',
      "controller: 'Controller'",
      "controller: 'HostHost'",
    ],
  ],
  'host/nvme/dhchap-target.ts': [
    [
      'a host with any response is authenticated',
      'unit/nvme/dhchap',
      '!timingSafeEqual(responseOf(expected), reply.response)',
      'false',
    ],
    [
      'a host that sends the controller its own challenge gets the response',
      'unit/nvme/dhchap',
      'timingSafeEqual(reply.challenge, exchange.challenge)',
      'false',
    ],
  ],
  'host/nvme/failure-limit.ts': [
    [
      'a source fails as often as it wants',
      'unit/nvme/authentication',
      '!known || known.count < FAILURES_MAX',
      'true',
    ],
  ],
  'host/nvme/host-association.ts': [
    [
      'a host with a secret connects a target that does not ask',
      'unit/nvme/authentication',
      'if (dhchap?.required !== true) return;',
      'return;',
    ],
  ],
  'host/nvme/queue-authentication.ts': [
    [
      'an authentication has no time limit',
      'unit/nvme/authentication',
      `    this.#watch();
  }

  get`,
      `  }

  get`,
    ],
  ],
  'host/nvme/slices.ts': [
    [
      'one owner has all turns',
      'unit/nvme/slices',
      `      this.#owners.delete(owner);
`,
      '',
    ],
    [
      'the event loop has no turn between slices',
      'unit/nvme/slices',
      'await new Promise<void>((resolve) => nextTurn(resolve));',
      '',
    ],
  ],
  'host/nvme/target-authenticator.ts': [
    [
      'failures are not counted for their source',
      'unit/nvme/authentication',
      'this.#failures.add(peer, this.#clock.now());',
      '',
    ],
  ],
  'host/nvme/target.ts': [
    [
      'commands are served before the authentication',
      'unit/nvme/authentication',
      'authentication?.isAuthenticated === false',
      'false',
    ],
    [
      'a host without a secret connects a target with secrets',
      'unit/nvme/authentication',
      'authenticator?.knows(hostnqn) === false',
      'false',
    ],
    [
      'one source takes all queues of an NVMe target',
      'unit/nvme/hostile',
      'own.length >= queuesPerSource || ',
      '',
    ],
  ],
  'host/pmem/header.ts': [
    [
      'a file that was cut off is opened',
      'unit/pmem/header',
      'if (fileBytes - header.dataOffset < header.length) {',
      'if (false) {',
    ],
    [
      'a header that was torn is believed',
      'unit/pmem/header',
      'if (view.getBigUint64(BODY, true) !== checksum(bytes)) return false;',
      '',
    ],
  ],
};
