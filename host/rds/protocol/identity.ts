/** Who a node runs as. What a peer says of itself is believed, as with NFS's AUTH_SYS. */
export interface Identity {
  readonly uid: number;
  readonly gids: readonly number[];
}

/** Groups that a peer is told of. */
export const GROUPS_MAX = 32;
