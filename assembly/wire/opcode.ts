/**
 * The opcode table: one row per opcode names its headers and what the packet means. Lengths and
 * offsets are derived from the rows, never typed. Parser, builder and tests read the same table.
 *
 * Source: InfiniBand Architecture Specification vol. 1, 9.2 (BTH opcodes) and 9.3 (extended
 * headers); Annex A17 for RoCEv2 (CNP); the memory placement extensions for FLUSH and ATOMIC WRITE.
 *
 * The table is made by code in linear memory (`initOpcodeTable`): the engine has no data segments.
 */

/** BTH byte 0. The top three bits name the transport, the rest the operation. */
export enum Opcode {
  RC_SEND_FIRST = 0x00,
  RC_SEND_MIDDLE = 0x01,
  RC_SEND_LAST = 0x02,
  RC_SEND_LAST_WITH_IMM = 0x03,
  RC_SEND_ONLY = 0x04,
  RC_SEND_ONLY_WITH_IMM = 0x05,
  RC_RDMA_WRITE_FIRST = 0x06,
  RC_RDMA_WRITE_MIDDLE = 0x07,
  RC_RDMA_WRITE_LAST = 0x08,
  RC_RDMA_WRITE_LAST_WITH_IMM = 0x09,
  RC_RDMA_WRITE_ONLY = 0x0a,
  RC_RDMA_WRITE_ONLY_WITH_IMM = 0x0b,
  RC_RDMA_READ_REQUEST = 0x0c,
  RC_RDMA_READ_RESPONSE_FIRST = 0x0d,
  RC_RDMA_READ_RESPONSE_MIDDLE = 0x0e,
  RC_RDMA_READ_RESPONSE_LAST = 0x0f,
  RC_RDMA_READ_RESPONSE_ONLY = 0x10,
  RC_ACKNOWLEDGE = 0x11,
  RC_ATOMIC_ACKNOWLEDGE = 0x12,
  RC_COMPARE_SWAP = 0x13,
  RC_FETCH_ADD = 0x14,
  RC_SEND_LAST_WITH_INVALIDATE = 0x16,
  RC_SEND_ONLY_WITH_INVALIDATE = 0x17,
  RC_FLUSH = 0x1c,
  RC_ATOMIC_WRITE = 0x1d,
  UC_SEND_FIRST = 0x20,
  UC_SEND_MIDDLE = 0x21,
  UC_SEND_LAST = 0x22,
  UC_SEND_LAST_WITH_IMM = 0x23,
  UC_SEND_ONLY = 0x24,
  UC_SEND_ONLY_WITH_IMM = 0x25,
  UC_RDMA_WRITE_FIRST = 0x26,
  UC_RDMA_WRITE_MIDDLE = 0x27,
  UC_RDMA_WRITE_LAST = 0x28,
  UC_RDMA_WRITE_LAST_WITH_IMM = 0x29,
  UC_RDMA_WRITE_ONLY = 0x2a,
  UC_RDMA_WRITE_ONLY_WITH_IMM = 0x2b,
  UD_SEND_ONLY = 0x64,
  UD_SEND_ONLY_WITH_IMM = 0x65,
  CNP = 0x81,
  /** Manufacturer specific: our own, and only sent to peers that agreed to it. */
  MSP_SELECTIVE_ACKNOWLEDGE = 0xe0,
}

/** Headers in wire order: the lower bit comes first, so a mask alone gives every offset. */
export enum Header {
  BTH = 0x001,
  DETH = 0x002,
  FETH = 0x004,
  RETH = 0x008,
  ATOMIC_ETH = 0x010,
  AETH = 0x020,
  ATOMIC_ACK_ETH = 0x040,
  IMM_DT = 0x080,
  IETH = 0x100,
  /** The 16 reserved bytes of a congestion notification packet. */
  CNP_RESERVED = 0x200,
  /** Which of the 128 PSNs behind the one in the BTH have arrived; bit 0 of each half is first. */
  SELECTIVE_ACK = 0x400,
}

/** How many kinds of header there are; the enum's bits are 0 .. HEADER_COUNT - 1. */
export const HEADER_COUNT: u32 = 11;

/** Properties of a packet, besides the headers it has: 16 bits. */
export enum PacketFlag {
  /** The opcode exists. */
  KNOWN = 0x0001,
  /** Begins a message (FIRST or ONLY). */
  START = 0x0002,
  /** Ends a message (LAST or ONLY). */
  END = 0x0004,
  SEND = 0x0008,
  WRITE = 0x0010,
  READ = 0x0020,
  ATOMIC = 0x0040,
  FLUSH = 0x0080,
  ATOMIC_WRITE = 0x0100,
  /** Travels from responder to requester. */
  RESPONSE = 0x0200,
  ACKNOWLEDGE = 0x0400,
  /** May carry payload. */
  PAYLOAD = 0x0800,
  /** Takes a receive work request from the receive queue when it completes. */
  RECEIVE = 0x1000,
  /** Not the first, not the last packet of its message: payload is exactly one path MTU. */
  MIDDLE = 0x2000,
  CONGESTION = 0x4000,
}

/** Kinds of requests that a response of their own answers. */
export const RESPONDED: u32 =
  PacketFlag.READ | PacketFlag.ATOMIC | PacketFlag.FLUSH | PacketFlag.ATOMIC_WRITE;

/** Services, as the top three bits of the opcode give them. */
export enum Service {
  RC = 0x00,
  UC = 0x20,
  UD = 0x60,
  CNP = 0x80,
  MSP = 0xe0,
}

/**
 * One row, 16 bytes:
 * ```
 *  0       2         4        5                              15
 *  | flags | headers | length | offset of each header but BTH | 0 |
 * ```
 * `length` counts all headers; an offset is 0 where the header is absent.
 */
export const OPCODE_ROW_SIZE: u32 = 16;
export const OPCODE_TABLE_SIZE: u32 = 256 * OPCODE_ROW_SIZE;

/** Bytes of one header. */
export function headerSize(header: u32): u32 {
  switch (header) {
    case Header.BTH:
      return 12;
    case Header.DETH:
      return 8;
    case Header.FETH:
      return 4;
    case Header.RETH:
      return 16;
    case Header.ATOMIC_ETH:
      return 28;
    case Header.AETH:
      return 4;
    case Header.ATOMIC_ACK_ETH:
      return 8;
    case Header.IMM_DT:
      return 4;
    case Header.IETH:
      return 4;
    case Header.CNP_RESERVED:
    case Header.SELECTIVE_ACK:
      return 16;
    default:
      return 0;
  }
}

function row(table: usize, opcode: u32, headers: u32, flags: u32): void {
  const at = table + <usize>(opcode * OPCODE_ROW_SIZE);
  let length: u32 = 0;
  for (let bit: u32 = 0; bit < HEADER_COUNT; bit++) {
    const header: u32 = 1 << bit;
    if (!(headers & header)) continue;
    if (bit > 0) store<u8>(at + 4 + bit, <u8>length);
    length += headerSize(header);
  }
  store<u16>(at, <u16>(flags | PacketFlag.KNOWN));
  store<u16>(at, <u16>headers, 2);
  store<u8>(at, <u8>length, 4);
}

/** The rows that RC and UC have in common: SEND and RDMA WRITE. */
function streamRows(table: usize, service: u32): void {
  const bth: u32 = Header.BTH;
  const send: u32 = PacketFlag.SEND | PacketFlag.PAYLOAD;
  const write: u32 = PacketFlag.WRITE | PacketFlag.PAYLOAD;
  const start: u32 = PacketFlag.START;
  const end: u32 = PacketFlag.END;
  const take: u32 = PacketFlag.RECEIVE;
  const middle: u32 = PacketFlag.MIDDLE;
  row(table, service + Opcode.RC_SEND_FIRST, bth, send | start);
  row(table, service + Opcode.RC_SEND_MIDDLE, bth, send | middle);
  row(table, service + Opcode.RC_SEND_LAST, bth, send | end | take);
  row(table, service + Opcode.RC_SEND_LAST_WITH_IMM, bth | Header.IMM_DT, send | end | take);
  row(table, service + Opcode.RC_SEND_ONLY, bth, send | start | end | take);
  row(
    table,
    service + Opcode.RC_SEND_ONLY_WITH_IMM,
    bth | Header.IMM_DT,
    send | start | end | take,
  );
  row(table, service + Opcode.RC_RDMA_WRITE_FIRST, bth | Header.RETH, write | start);
  row(table, service + Opcode.RC_RDMA_WRITE_MIDDLE, bth, write | middle);
  row(table, service + Opcode.RC_RDMA_WRITE_LAST, bth, write | end);
  row(table, service + Opcode.RC_RDMA_WRITE_LAST_WITH_IMM, bth | Header.IMM_DT, write | end | take);
  row(table, service + Opcode.RC_RDMA_WRITE_ONLY, bth | Header.RETH, write | start | end);
  row(
    table,
    service + Opcode.RC_RDMA_WRITE_ONLY_WITH_IMM,
    bth | Header.RETH | Header.IMM_DT,
    write | start | end | take,
  );
}

/** Writes the table. `table`: OPCODE_TABLE_SIZE bytes. */
export function initOpcodeTable(table: usize): void {
  const bth: u32 = Header.BTH;
  const only: u32 = PacketFlag.START | PacketFlag.END;
  const response: u32 = PacketFlag.RESPONSE;
  const read: u32 = PacketFlag.READ | PacketFlag.RESPONSE | PacketFlag.PAYLOAD;
  memory.fill(table, 0, OPCODE_TABLE_SIZE);
  streamRows(table, Service.RC);
  streamRows(table, Service.UC);
  row(table, Opcode.RC_RDMA_READ_REQUEST, bth | Header.RETH, PacketFlag.READ | only);
  row(table, Opcode.RC_RDMA_READ_RESPONSE_FIRST, bth | Header.AETH, read | PacketFlag.START);
  row(table, Opcode.RC_RDMA_READ_RESPONSE_MIDDLE, bth, read | PacketFlag.MIDDLE);
  row(table, Opcode.RC_RDMA_READ_RESPONSE_LAST, bth | Header.AETH, read | PacketFlag.END);
  row(table, Opcode.RC_RDMA_READ_RESPONSE_ONLY, bth | Header.AETH, read | only);
  row(
    table,
    Opcode.RC_ACKNOWLEDGE,
    bth | Header.AETH,
    response | only | (<u32>PacketFlag.ACKNOWLEDGE),
  );
  row(
    table,
    Opcode.RC_ATOMIC_ACKNOWLEDGE,
    bth | Header.AETH | Header.ATOMIC_ACK_ETH,
    response | only | (<u32>PacketFlag.ATOMIC),
  );
  row(table, Opcode.RC_COMPARE_SWAP, bth | Header.ATOMIC_ETH, only | (<u32>PacketFlag.ATOMIC));
  row(table, Opcode.RC_FETCH_ADD, bth | Header.ATOMIC_ETH, only | (<u32>PacketFlag.ATOMIC));
  row(
    table,
    Opcode.RC_SEND_LAST_WITH_INVALIDATE,
    bth | Header.IETH,
    PacketFlag.SEND | PacketFlag.PAYLOAD | PacketFlag.END | PacketFlag.RECEIVE,
  );
  row(
    table,
    Opcode.RC_SEND_ONLY_WITH_INVALIDATE,
    bth | Header.IETH,
    PacketFlag.SEND | PacketFlag.PAYLOAD | PacketFlag.RECEIVE | only,
  );
  row(table, Opcode.RC_FLUSH, bth | Header.FETH | Header.RETH, only | (<u32>PacketFlag.FLUSH));
  row(
    table,
    Opcode.RC_ATOMIC_WRITE,
    bth | Header.RETH,
    PacketFlag.ATOMIC_WRITE | PacketFlag.PAYLOAD | only,
  );
  const datagram: u32 = PacketFlag.SEND | PacketFlag.PAYLOAD | PacketFlag.RECEIVE | only;
  row(table, Opcode.UD_SEND_ONLY, bth | Header.DETH, datagram);
  row(table, Opcode.UD_SEND_ONLY_WITH_IMM, bth | Header.DETH | Header.IMM_DT, datagram);
  row(
    table,
    Opcode.MSP_SELECTIVE_ACKNOWLEDGE,
    bth | Header.AETH | Header.SELECTIVE_ACK,
    response | only | (<u32>PacketFlag.ACKNOWLEDGE) | PacketFlag.PAYLOAD,
  );
  row(table, Opcode.CNP, bth | Header.CNP_RESERVED, only | (<u32>PacketFlag.CONGESTION));
}

/** The flags (PacketFlag) of an opcode; 0: unknown opcode. */
export function flagsOf(table: usize, opcode: u32): u32 {
  return load<u16>(table + <usize>(opcode * OPCODE_ROW_SIZE));
}

/** The headers (Header) of an opcode. */
export function headersOf(table: usize, opcode: u32): u32 {
  return load<u16>(table + <usize>(opcode * OPCODE_ROW_SIZE), 2);
}

/** Bytes of all headers of an opcode: where its payload begins. */
export function headersLength(table: usize, opcode: u32): u32 {
  return load<u8>(table + <usize>(opcode * OPCODE_ROW_SIZE), 4);
}

/** Where a header begins, from the start of the BTH. Only for headers that the opcode has. */
export function headerOffset(table: usize, opcode: u32, header: u32): u32 {
  return load<u8>(table + <usize>(opcode * OPCODE_ROW_SIZE) + 4 + ctz(header));
}
