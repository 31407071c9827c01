/** Recognizes Linux's software adapter by its messages. */

/** UDP source port of rxe's queue pair 1: 0xc000 + hash_32(1, 14) (rxe_qp_init_req). */
const RXE_PORT = 55410;

/**
 * Is the peer Linux's software adapter, rdma_rxe? rdma_rxe sends from one UDP port, and its CA GUID
 * is an EUI-64 made from a MAC address: `ff fe` in the middle. Recorded messages of Linux 6.12 have
 * both. `port`: UDP source port of a message of the connection manager.
 */
export function isRxe(caGuid: bigint, port: number): boolean {
  return port === RXE_PORT && ((caGuid >> 24n) & 0xffffn) === 0xfffen;
}
