/** All attacks. */
import type { Attack } from './attack.js';
import { AUTHENTICATED_ATTACKS } from './authenticated.js';
import { CM_ATTACKS } from './cm.js';
import { TRANSPORT_ATTACKS } from './transport.js';
import { FILE_ATTACKS } from './files.js';
import { CO_PROCESS_ATTACKS } from './co-process.js';
import { EXHAUSTION_ATTACKS } from './exhaustion.js';
import { FLOOD_ATTACKS } from './floods.js';
import { GUESSING_ATTACKS } from './guessing.js';
import { MEMORY_ATTACKS } from './memory.js';
import { NETWORK_ATTACKS } from './network.js';
import { SERVER_ATTACKS } from './servers.js';

export const ATTACKS: readonly Attack[] = [
  ...CM_ATTACKS,
  ...AUTHENTICATED_ATTACKS,
  ...TRANSPORT_ATTACKS,
  ...NETWORK_ATTACKS,
  ...FLOOD_ATTACKS,
  ...EXHAUSTION_ATTACKS,
  ...SERVER_ATTACKS,
  ...GUESSING_ATTACKS,
  ...MEMORY_ATTACKS,
  ...CO_PROCESS_ATTACKS,
  ...FILE_ATTACKS,
];
