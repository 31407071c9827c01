/** Layout of the begin of each PE's symmetric memory, before that of the application. */
/** Flags of teams (team.ts). */
export const TEAMS_MAX = 64;
export const TEAM_BYTES = 64;
/** In the flags of a team, behind those of the rounds: syncs that the PE has come to. */
export const ARRIVED_OFFSET = 60;
/** A word that a PE shows the others of its team. */
export const AGREEMENT_OFFSET = TEAMS_MAX * TEAM_BYTES;
/** A word that peers write to find out whether the PE answers. */
export const PROBE_OFFSET = AGREEMENT_OFFSET + 8;
/** Records of teams (agreement.ts), then the application's memory. */
export const RECORDS_OFFSET = AGREEMENT_OFFSET + 64;
