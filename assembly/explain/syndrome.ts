/** The AETH syndrome in words. */
import {
  ACK_WITHOUT_CREDITS,
  NakCode,
  SyndromeKind,
  rnrTimerMicros,
  syndromeKind,
  syndromeValue,
} from '../wire/syndrome';
import { duration, hex } from './text';

/** How many messages a credit code stands for (IBA 9.7.7.2): 0, 1, 2, 3, 4, 6, 8, 12 ... 32768. */
export function creditCount(code: u32): u32 {
  if (code < 3) return code;
  return code & 1 ? 3 << ((code - 3) >> 1) : 1 << (code >> 1);
}

/** Member name of a syndrome's kind; RESERVED whenever it means nothing. */
export function syndromeKindName(syndrome: u32): string {
  if (syndrome > 0x7f) return 'RESERVED';
  switch (syndromeKind(syndrome)) {
    case SyndromeKind.ACK:
      return 'ACK';
    case SyndromeKind.RNR_NAK:
      return 'RNR_NAK';
    case SyndromeKind.NAK:
      return 'NAK';
    default:
      return 'RESERVED';
  }
}

/** Member name of a NAK code; RESERVED for undefined ones. */
export function nakName(syndrome: u32): string {
  switch (syndrome) {
    case NakCode.PSN_SEQUENCE_ERROR:
      return 'PSN_SEQUENCE_ERROR';
    case NakCode.INVALID_REQUEST:
      return 'INVALID_REQUEST';
    case NakCode.REMOTE_ACCESS_ERROR:
      return 'REMOTE_ACCESS_ERROR';
    case NakCode.REMOTE_OPERATIONAL_ERROR:
      return 'REMOTE_OPERATIONAL_ERROR';
    case NakCode.INVALID_RD_REQUEST:
      return 'INVALID_RD_REQUEST';
    default:
      return 'RESERVED';
  }
}

/** Meaning of a NAK, short enough to stand inside a sentence. */
function nakMeaning(syndrome: u32): string {
  switch (syndrome) {
    case NakCode.PSN_SEQUENCE_ERROR:
      return 'packet sequence error, packets are missing before this one';
    case NakCode.INVALID_REQUEST:
      return 'invalid request, the responder cannot or may not do that';
    case NakCode.REMOTE_ACCESS_ERROR:
      return 'remote access error, the key does not allow that access there';
    case NakCode.REMOTE_OPERATIONAL_ERROR:
      return 'remote operational error, the responder could not finish it';
    case NakCode.INVALID_RD_REQUEST:
      return 'invalid reliable datagram request';
    default:
      return 'reserved code ' + syndromeValue(syndrome).toString();
  }
}

/** A syndrome as part of a sentence about a packet. */
export function syndromePhrase(syndrome: u32): string {
  const value = syndromeValue(syndrome);
  const kind = syndromeKindName(syndrome);
  if (kind == 'ACK') {
    if (value == ACK_WITHOUT_CREDITS) return 'ACK';
    return 'ACK with ' + creditCount(value).toString() + ' credits';
  }
  if (kind == 'RNR_NAK') {
    return 'RNR NAK, receiver not ready, try again in ' + duration(rnrTimerMicros(value));
  }
  if (kind == 'NAK') return 'NAK ' + hex(syndrome, 2) + ', ' + nakMeaning(syndrome);
  return 'reserved syndrome ' + hex(syndrome, 2);
}

/** Consequence of a NAK for the requester, with likely causes and remedies. */
function nakRemedy(syndrome: u32): string {
  switch (syndrome) {
    case NakCode.PSN_SEQUENCE_ERROR:
      return (
        'The requester goes back to the PSN of this packet and sends again. Likely: loss or ' +
        'reordering. Try: nothing, unless they are frequent; then look for drops at the ' +
        'receive buffer of the responder.'
      );
    case NakCode.INVALID_REQUEST:
      return (
        'The work request completes with REM_INV_REQ_ERR. Likely: the message is longer than ' +
        'the posted receive, the operation is not enabled on the queue pair, the address of an ' +
        'atomic is not a multiple of 8, or more reads than max_dest_rd_atomic are outstanding.'
      );
    case NakCode.REMOTE_ACCESS_ERROR:
      return (
        'The work request completes with REM_ACCESS_ERR. Likely: a stale or mistyped key, a ' +
        'range outside of the region, a missing access flag, or another protection domain.'
      );
    case NakCode.REMOTE_OPERATIONAL_ERROR:
      return (
        'The work request completes with REM_OP_ERR. Likely: an error at the responder, for ' +
        'example a receive whose buffer is not writable: look at its completions and events.'
      );
    case NakCode.INVALID_RD_REQUEST:
      return 'Only the reliable datagram service of InfiniBand uses it, which RoCE never has.';
    default:
      return 'No specification defines it: the responder is broken, or not what it seems.';
  }
}

/** A syndrome by itself: what it means, and what follows. */
export function syndromeSentence(syndrome: i32): string {
  if (syndrome < 0 || syndrome > 0xff) {
    return syndrome.toString() + ' is not a syndrome: it must be one byte, 0 to 255.';
  }
  const code = <u32>syndrome;
  const value = syndromeValue(code);
  const kind = syndromeKindName(code);
  if (kind == 'ACK') {
    const credits =
      value == ACK_WITHOUT_CREDITS
        ? 'It says nothing about receive credits.'
        : 'The responder has room for ' + creditCount(value).toString() + ' more messages.';
    return 'ACK: everything up to the PSN of this packet has arrived and is done. ' + credits;
  }
  if (kind == 'RNR_NAK') {
    return (
      'RNR NAK: the responder has no receive posted; the requester waits ' +
      duration(rnrTimerMicros(value)) +
      ' (timer code ' +
      value.toString() +
      ') and sends again, rnr_retry times at most. Try: post more receives at the responder, ' +
      'or lower its min_rnr_timer.'
    );
  }
  if (kind == 'NAK') {
    return 'NAK ' + hex(code, 2) + ': ' + nakMeaning(code) + '. ' + nakRemedy(code);
  }
  return 'Reserved syndrome ' + hex(code, 2) + ': no specification gives it a meaning.';
}
