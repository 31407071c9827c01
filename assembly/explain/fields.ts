/**
 * A packet as a JSON object: one member per header, in wire order, named after the fields of
 * PacketFields. Numbers of 64 bits are hexadecimal strings, since JSON's readers round them.
 */
import {
  PlacementType,
  SelectivityLevel,
  bthAckRequest,
  bthCongestion,
  bthMigration,
  bthOpcode,
  bthPadCount,
  bthPkey,
  bthPsn,
  bthSolicited,
  bthTargetQp,
  bthVersion,
  placementOf,
  selectivityOf,
} from '../wire/headers';
import { HEADER_COUNT, Header, flagsOf } from '../wire/opcode';
import { PacketFields, PacketStatus } from '../wire/packet';
import { ACK_WITHOUT_CREDITS, rnrTimerMicros, syndromeValue } from '../wire/syndrome';
import { decode, decoded, opcodeTable } from './decode';
import { opcodeName } from './opcode';
import { malformedSentence, packetStatusName } from './packet-status';
import { creditCount, nakName, syndromeKindName } from './syndrome';
import { hex, hexWord, member, memberBool, memberNumber, memberText, object } from './text';

const BTH_SIZE: u32 = 12;

/** All fields of `packet`, `length` bytes from BTH to ICRC; of a malformed one what there is. */
export function packetFields(packet: usize, length: u32): string {
  const status = decode(packet, length);
  const members = new Array<string>();
  members.push(memberText('status', packetStatusName(status)));
  members.push(memberNumber('length', length));
  if (status != PacketStatus.OK) {
    const reason = malformedSentence(opcodeTable(), status, packet, length);
    members.push(memberText('reason', reason));
    if (length >= BTH_SIZE) members.push(member('bth', bthObject(packet)));
    return object(members);
  }
  const fields = decoded();
  members.push(member('bth', bthObject(packet)));
  for (let bit: u32 = 1; bit < HEADER_COUNT; bit++) {
    const header: u32 = 1 << bit;
    if (fields.headers & header) members.push(headerMember(header, fields));
  }
  const payload = object([
    memberNumber('offset', fields.headersLength),
    memberNumber('length', fields.payloadLength),
  ]);
  members.push(member('payload', payload));
  members.push(memberText('icrc', hexWord(fields.icrc)));
  return object(members);
}

function bthObject(bth: usize): string {
  const opcode = bthOpcode(bth);
  const congestion = bthCongestion(bth);
  const members = new Array<string>();
  members.push(memberNumber('opcode', opcode));
  const isKnown = flagsOf(opcodeTable(), opcode) != 0;
  members.push(isKnown ? memberText('name', opcodeName(opcode)) : member('name', 'null'));
  members.push(memberBool('solicited', bthSolicited(bth)));
  members.push(memberBool('migration', bthMigration(bth)));
  members.push(memberNumber('padCount', bthPadCount(bth)));
  members.push(memberNumber('version', bthVersion(bth)));
  members.push(memberNumber('pkey', bthPkey(bth)));
  members.push(memberBool('fecn', congestion & 0x80));
  members.push(memberBool('becn', congestion & 0x40));
  members.push(memberNumber('targetQp', bthTargetQp(bth)));
  members.push(memberBool('ackRequest', bthAckRequest(bth)));
  members.push(memberNumber('psn', bthPsn(bth)));
  return object(members);
}

function headerMember(header: u32, fields: PacketFields): string {
  const address = memberText('virtualAddress', hex(fields.virtualAddress, 16));
  const key = memberNumber('key', fields.key);
  switch (header) {
    case Header.DETH:
      return member(
        'deth',
        object([memberNumber('qkey', fields.qkey), memberNumber('sourceQp', fields.sourceQp)]),
      );
    case Header.FETH:
      return member('feth', flushObject(fields.flush));
    case Header.RETH:
      return member('reth', object([address, key, memberNumber('dmaLength', fields.dmaLength)]));
    case Header.ATOMIC_ETH:
      return member(
        'atomicEth',
        object([
          address,
          key,
          memberText('swapAdd', hex(fields.swapAdd, 16)),
          memberText('compare', hex(fields.compare, 16)),
        ]),
      );
    case Header.AETH:
      return member('aeth', syndromeObject(fields.syndrome, fields.msn));
    case Header.ATOMIC_ACK_ETH:
      return member('atomicAckEth', object([memberText('original', hex(fields.original, 16))]));
    case Header.IMM_DT:
      return member('immDt', object([memberNumber('immediate', fields.immediate)]));
    case Header.IETH:
      return member('ieth', object([key]));
    case Header.SELECTIVE_ACK:
      return member(
        'selectiveAck',
        object([
          memberText('aheadLow', hex(fields.aheadLow, 16)),
          memberText('aheadHigh', hex(fields.aheadHigh, 16)),
        ]),
      );
    default:
      // The reserved bytes of a CNP: it is there, and says nothing.
      return member('cnpReserved', object([]));
  }
}

function flushObject(flush: u32): string {
  const placement = placementOf(flush);
  const names = new Array<string>();
  if (placement & PlacementType.GLOBAL) names.push('"GLOBAL"');
  if (placement & PlacementType.PERSISTENT) names.push('"PERSISTENT"');
  const selectivity = selectivityOf(flush);
  let level = 'RESERVED';
  if (selectivity == SelectivityLevel.RANGE) level = 'RANGE';
  if (selectivity == SelectivityLevel.MR) level = 'MR';
  return object([
    memberText('selectivity', level),
    member('placement', '[' + names.join(',') + ']'),
  ]);
}

/** Kind, and what that kind says: credits, a wait, or a code. */
function syndromeObject(syndrome: u32, msn: u32): string {
  const kind = syndromeKindName(syndrome);
  const value = syndromeValue(syndrome);
  const members = new Array<string>();
  members.push(memberNumber('syndrome', syndrome));
  members.push(memberText('kind', kind));
  if (kind == 'ACK' && value != ACK_WITHOUT_CREDITS) {
    members.push(memberNumber('credits', creditCount(value)));
  }
  if (kind == 'RNR_NAK') members.push(memberNumber('waitMicros', rnrTimerMicros(value)));
  if (kind == 'NAK') members.push(memberText('code', nakName(syndrome)));
  members.push(memberNumber('msn', msn));
  return object(members);
}
