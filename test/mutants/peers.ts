/** Detection of Linux rxe as the peer, flushes to it, and its packets in captures. */
import type { Row } from './mutants.js';

const ADDRESS = 'host/cm/address.ts';
const AGREEMENT = 'host/cm/agreement.ts';
const FLUSH = 'host/rpma/flush.ts';
const PCAP = 'host/link/pcap.ts';
const JUDGE = 'host/link/icrc-judge.ts';

export const PEERS: readonly Row[] = [
  [
    'any adapter that sends from that port counts as rxe',
    ADDRESS,
    'return port === RXE_PORT && ((caGuid >> 24n) & 0xffffn) === 0xfffen;',
    'return port === RXE_PORT;',
  ],
  [
    'any adapter with an EUI-48 in its GUID counts as rxe',
    ADDRESS,
    'return port === RXE_PORT && ((caGuid >> 24n) & 0xffffn) === 0xfffen;',
    'return ((caGuid >> 24n) & 0xffffn) === 0xfffen;',
  ],
  [
    'FLUSH requests to rxe have the standard ICRC',
    AGREEMENT,
    'return { dgid: gid, port, receiveBufferBytes, doubledFlushIcrc };',
    'return { dgid: gid, port, receiveBufferBytes };',
  ],
  [
    'a region without READ access is flushed by a READ',
    FLUSH,
    'if (wanted !== undefined || !isRxe || usage & MrUsage.READ_SRC) return read;',
    'return read;',
  ],
  [
    'a flush method that was set is not binding',
    FLUSH,
    'if (wanted !== undefined || !isRxe || usage & MrUsage.READ_SRC) return read;',
    'if (!isRxe || usage & MrUsage.READ_SRC) return read;',
  ],
  [
    'a hardware adapter is flushed by a READ of 0 bytes',
    FLUSH,
    'if (wanted !== undefined || !isRxe || usage & MrUsage.READ_SRC) return read;',
    'if (wanted !== undefined || usage & MrUsage.READ_SRC) return read;',
  ],
  [
    'a READ of 0 bytes makes memory persistent',
    FLUSH,
    "return type === FlushType.PERSISTENT ? NATIVE : { method: 'appliance', length: 0 };",
    "return { method: 'appliance', length: 0 };",
  ],
  [
    'packets from Linux are captured without their identification',
    PCAP,
    'const id = isReceived ? (this.#judge ??= new IcrcJudge()).identificationOf(datagram) : 0;',
    'const id = 0;',
  ],
  [
    'a multicast packet is captured as a unicast packet',
    PCAP,
    'group ? new Endpoint(group, local.port) : local',
    'local',
  ],
  [
    'a packet of a flow is captured with the link’s own port',
    PCAP,
    'return flowPorts?.includes(sourcePort) ? new Endpoint(local.gid, sourcePort) : local;',
    'return local;',
  ],
  [
    'the identification of a FLUSH of rxe is not found',
    JUDGE,
    'if (isDoubled && packet.payload[0] !== Opcode.RC_FLUSH) break;',
    'if (isDoubled) break;',
  ],
];
