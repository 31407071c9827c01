/**
 * The text module: numbers and bytes to sentences, text to numbers. It has a memory of its own and
 * speaks strings (through as-bind), so it is never on the data path; the engine has no text.
 */
import { asyncEventSentence } from './explain/async-event';
import { parseConfigText } from './explain/config';
import { errnoSentence } from './explain/errno';
import { packetFields } from './explain/fields';
import { packetSentence } from './explain/packet';
import { packetStatusSentence } from './explain/packet-status';
import { syndromeSentence } from './explain/syndrome';
import { wcStatusSentence } from './explain/wc-status';

/** One sentence about a packet, BTH to ICRC, or about what is wrong with it. Takes any bytes. */
export function explainPacket(packet: Uint8Array): string {
  return packetSentence(packet.dataStart, packet.length);
}

/** The header fields of a packet, BTH to ICRC, as JSON in wire order. Takes any bytes. */
export function explainFields(packet: Uint8Array): string {
  return packetFields(packet.dataStart, packet.length);
}

/** A completion status (WcStatus) and its vendor_err: meaning, likely cause, remedy. */
export function explainWcStatus(status: i32, vendor: i32): string {
  return wcStatusSentence(status, vendor);
}

/** An AETH syndrome, one byte. */
export function explainSyndrome(syndrome: i32): string {
  return syndromeSentence(syndrome);
}

/** Why a packet was refused (PacketStatus). */
export function explainPacketStatus(status: i32): string {
  return packetStatusSentence(status);
}

/** An asynchronous event (AsyncEvent). */
export function explainAsyncEvent(event: i32): string {
  return asyncEventSentence(event);
}

/** Sentence for the Errno of a refused verb. */
export function explainErrno(errno: i32): string {
  return errnoSentence(errno);
}

/** Device options as text, to JSON: `values`, or an `error` with line, column and message. */
export function parseConfig(text: string): string {
  return parseConfigText(text);
}
