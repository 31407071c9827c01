/** Attacks on the servers that the commands are. */
import type { Attack } from './attack.js';
import { DEMO_ATTACKS } from './demo.js';
import { FILE_SERVER_ATTACKS } from './file-server.js';
import { NVME_AUTHENTICATION_ATTACKS } from './nvme-authentication.js';
import { NVME_ATTACKS } from './nvme.js';
import { SQUATTING_ATTACKS } from './squatting.js';

export const SERVER_ATTACKS: readonly Attack[] = [
  ...DEMO_ATTACKS,
  ...FILE_SERVER_ATTACKS,
  ...NVME_ATTACKS,
  ...NVME_AUTHENTICATION_ATTACKS,
  ...SQUATTING_ATTACKS,
];
