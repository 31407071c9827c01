/** Completion statuses: what happened, the likely cause, and what to try. */
import { VendorError, WcStatus } from '../transport/shared/status';

/** Statuses that only the reliable datagram service of InfiniBand uses. */
function reliableDatagramOnly(what: string): string {
  return (
    what +
    ' Only the reliable datagram (RD) and extended end-to-end contexts of InfiniBand report it; ' +
    'RoCE has neither, so nothing here produces it. Likely: a number that comes from somewhere ' +
    'else. Try: check where the status was read from.'
  );
}

/** Errors found on our own side. */
function localSentence(status: i32): string {
  switch (status) {
    case WcStatus.LOC_LEN_ERR:
      return (
        'A message was longer than the buffers of the receive that it met, or longer than the ' +
        'operation allows. Likely: receives posted with less room than the peer sends, or a UD ' +
        'receive without the 40 bytes in front. Try: post larger receives, or agree on a ' +
        'maximum message size.'
      );
    case WcStatus.LOC_QP_OP_ERR:
      return (
        'The queue pair could not carry out a work request that does not fit its state or ' +
        'kind. Likely: an operation this queue pair was not created for, more data than one ' +
        'message may have (2 GiB; one path MTU on UD), a LOCAL_INV of a key that is not live or ' +
        'may not be invalidated, or a REG_MR of a region that is registered, with other rights ' +
        'than regMr would grant, or of memory that is freed, or a BIND_MR without a recorded ' +
        'layout. Try: compare the request with the type, the capabilities and the enabled ' +
        'operations of the queue pair.'
      );
    case WcStatus.LOC_PROT_ERR:
      return (
        'A local buffer of the work request lies outside of the memory that its key names, or ' +
        'may not be used like that. Likely: a wrong lkey, a region already deregistered or of ' +
        'another protection domain, one that a memory layout names among them, or a READ, ' +
        'atomic or receive into a region without LOCAL_WRITE. Try: check address, length and lkey of each scatter/gather entry.'
      );
    case WcStatus.WR_FLUSH_ERR:
      return (
        'The work request was not carried out: the queue pair went into the error state before ' +
        'its turn came. This follows from an earlier failure, or from a disconnect. Try: look ' +
        'for the first completion of this queue pair with another status, which has the cause; ' +
        'then reset the queue pair and connect it again.'
      );
    case WcStatus.MW_BIND_ERR:
      return (
        'A memory window could not be bound. Likely: the region lacks MW_BIND or is zero-based, ' +
        'the range reaches outside the region, queue pair, window and region are of different ' +
        'protection domains, the window is to write where the region has no LOCAL_WRITE, or a ' +
        'type 2 window is still bound, or given length 0. The window is as it was before. ' +
        'Try: invalidate the window first, and register the region with MW_BIND.'
      );
    case WcStatus.LOC_ACCESS_ERR:
      return (
        'A request of the peer met a local region that does not grant it, while a receive was ' +
        'being used for it. Likely: an RDMA WRITE with immediate to a region without ' +
        'REMOTE_WRITE. Try: check the access flags of the region and of the queue pair.'
      );
    default:
      return '';
  }
}

/** Errors that the peer reported, or its silence. */
function remoteSentence(status: i32): string {
  switch (status) {
    case WcStatus.BAD_RESP_ERR:
      return (
        'The response that came back does not belong to any request: a wrong opcode, length or ' +
        'syndrome. Likely: a peer that does not keep to the protocol, or two queue pairs that ' +
        'are connected to one. Try: capture the packets and look at them with "verbena decode".'
      );
    case WcStatus.REM_INV_REQ_ERR:
      return (
        'The peer refused the request as invalid (NAK 0x61). Likely: the message is longer than ' +
        'the receive that the peer posted, the operation is not enabled on its queue pair, an ' +
        'atomic whose address is not a multiple of 8, or more reads and atomics at once than ' +
        'its max_dest_rd_atomic. Try: compare these with what the peer granted.'
      );
    case WcStatus.REM_ACCESS_ERR:
      return (
        'The peer refused the access to its memory (NAK 0x62). Likely: a wrong or stale rkey, a ' +
        'window whose region has changed, or of another queue pair, ' +
        'an address range outside of the region, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC or ' +
        'the FLUSH rights missing on the region or the queue pair, or another protection ' +
        'domain. Try: print address, length and rkey on both sides; register the region again ' +
        'with the rights that are missing.'
      );
    case WcStatus.REM_OP_ERR:
      return (
        'The peer could not finish the request (NAK 0x63). Likely: the receive that it posted ' +
        'names memory that it may not write, or storage behind a FLUSH failed. Try: look at the ' +
        'completions and asynchronous events of the peer.'
      );
    case WcStatus.RETRY_EXC_ERR:
      return (
        'The peer did not answer within timeout x (retry_cnt + 1) tries. Likely: wrong address, ' +
        'port or queue pair number, peer not in RTR, a firewall, or loss above what retries ' +
        'cover. Try: ping the address, compare queue pair numbers and PSNs of both sides, open ' +
        'UDP port 4791, and raise timeout or retry_cnt where packets are lost.'
      );
    case WcStatus.RNR_RETRY_EXC_ERR:
      return (
        'The peer kept answering "receiver not ready": it had no receive posted, rnr_retry + 1 ' +
        'times. Likely: it posts receives too late or too few of them. Try: post receives ' +
        'before the connection is made, raise min_rnr_timer at the peer, or set rnr_retry to 7, ' +
        'which waits without end.'
      );
    case WcStatus.REM_ABORT_ERR:
      return (
        'The peer aborted the operation: its queue pair went into an error state while the ' +
        'request was under way. Likely: the peer gave up or was destroyed. Try: look at the ' +
        'completions and asynchronous events of the peer, then connect again.'
      );
    case WcStatus.RESP_TIMEOUT_ERR:
      return (
        'A response did not come in time, though the request was acknowledged. Likely: the ' +
        'peer stopped meanwhile, or is overloaded. Try: raise timeout, and look ' +
        'whether the program on the other side still makes progress.'
      );
    default:
      return '';
  }
}

/** Bytes around the payload in an IP packet: headers of IPv6, UDP and of a WRITE, ICRC. */
const AROUND: i32 = 40 + 8 + 64;

/** No answer, because packets are too long. `''`: for another reason. */
function pathMtuSentence(vendor: i32): string {
  const refused: i32 = VendorError.PATH_MTU_REFUSED;
  const dropped: i32 = VendorError.PATH_MTU;
  if (vendor < dropped) return '';
  const mtu = vendor >= refused ? vendor - refused : vendor - dropped;
  const smaller = mtu > 1024 ? 1024 : 1 << (31 - clz(mtu - 1));
  const what =
    vendor >= refused
      ? 'The system refused packets of path MTU ' +
        mtu.toString() +
        ' (EMSGSIZE). Likely: the ' +
        'MTU of the interface was lowered, or that of the route is smaller'
      : 'The peer answered short packets, but none of path MTU ' +
        mtu.toString() +
        '. Likely: ' +
        'an interface or a network on the way there or back has a smaller MTU and drops them';
  return (
    what +
    ': they need an IP MTU of ' +
    (mtu + AROUND).toString() +
    ' bytes. Try: connect with ' +
    'pathMtu MTU_' +
    smaller.toString() +
    ' (1024 fits an IP MTU of 1500), or raise the MTU on ' +
    'the way.'
  );
}

/** A completion status: what it means, the likely cause, the remedy. `vendor`: its vendor_err. */
export function wcStatusSentence(status: i32, vendor: i32): string {
  if (status == WcStatus.RETRY_EXC_ERR) {
    const tooLong = pathMtuSentence(vendor);
    if (tooLong != '') return tooLong;
  }
  const local = localSentence(status);
  if (local != '') return local;
  const remote = remoteSentence(status);
  if (remote != '') return remote;
  switch (status) {
    case WcStatus.SUCCESS:
      return (
        'The work request is done. For an RDMA WRITE this means that the peer has the data, not ' +
        'that it is persistent or that its program has seen it: FLUSH is for that.'
      );
    case WcStatus.LOC_EEC_OP_ERR:
      return reliableDatagramOnly('A local end-to-end context could not carry out the request.');
    case WcStatus.LOC_RDD_VIOL_ERR:
      return reliableDatagramOnly('The reliable datagram domains of the two sides differ.');
    case WcStatus.REM_INV_RD_REQ_ERR:
      return reliableDatagramOnly('The peer refused a reliable datagram request as invalid.');
    case WcStatus.INV_EECN_ERR:
      return reliableDatagramOnly('The number of the end-to-end context is invalid.');
    case WcStatus.INV_EEC_STATE_ERR:
      return reliableDatagramOnly('The end-to-end context is in a state that does not allow it.');
    case WcStatus.FATAL_ERR:
      return (
        'The device failed and cannot go on. Likely: its link was lost for good, or its engine ' +
        'stopped on an error of its own. Try: close the device and open it again; if that ' +
        'happens twice, report it with a capture of the packets.'
      );
    case WcStatus.GENERAL_ERR:
      return (
        'The work request failed for a reason that has no status of its own. Likely: an error ' +
        'of the host below the engine, for example storage behind a FLUSH. Try: look at ' +
        'vendor_err of the completion and at the asynchronous events of the device.'
      );
    default:
      return 'There is no completion status ' + status.toString() + '; they are 0 to 21.';
  }
}
