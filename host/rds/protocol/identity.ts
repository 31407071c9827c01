/** User and groups of a node. A peer's own statement is believed, as with NFS's AUTH_SYS. */
export interface Identity {
  readonly uid: number;
  readonly gids: readonly number[];
}

/** Groups that a node sends to its peers. */
export const GROUPS_MAX = 32;
