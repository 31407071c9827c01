/** Limits of options: the command line checks them before it loads the modules of a command. */

/** Bytes of a message of `rping`: the longest prefix and its number fit in. */
export const RPING_BYTES_MIN = 25;
export const RPING_BYTES_MAX = 65535;

/** Bytes of a message of `rds-stress`: kind, 3 reserved bytes, number, time of the request. */
export const STRESS_BYTES_MIN = 16;
export const STRESS_TASKS_MAX = 256;
export const STRESS_DEPTH_MAX = 64;
