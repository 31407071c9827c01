/** Every operation of RC, UC and UD between Linux rxe and us, each side in both roles. */
import type { GuestGroup } from './group.js';
import { guestTools } from './rxe/image.js';

export const rxeGroup: GuestGroup = {
  name: 'rxe',
  tools: guestTools,
  guests: 1,
  async run(report, lab) {
    await report.check('smoke', async () => {
      report.note(await lab.guest.run('ibv_devinfo -v | grep GID; rdma link'));
      const program = lab.guest.spawn('sleep 100');
      await new Promise((r) => setTimeout(r, 500));
      await program.stop();
      report.note(JSON.stringify(await program.ended));
      await lab.guest.run('sleep 20', 1).catch((error: Error) => report.note(error.message));
      await lab.guest.run('false').catch((error: Error) => report.note(error.message));
    });
  },
};
