/** Stands in for rdma-rxe.ts in a page: nothing of its links comes from the adapter's UDP port. */
export function isRxe(): boolean {
  return false;
}
