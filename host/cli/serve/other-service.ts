/** `serve` and `serve --pmem` listen at different services: each refuses clients of the other. */
import type { AuthOptions, Context } from '../../index.js';
import { RefusalError } from '../../errors/errors.js';
import { listen } from '../../cm/connect.js';
import { authOption } from '../base/psk-file.js';
import { refuse } from '../../transfer/channel.js';

/** Refuses each client at `service` with EOPNOTSUPP and `sentence`, until the device closes. */
export async function refuseClients(
  context: Context,
  place: { readonly address: string; readonly port: number },
  auth: AuthOptions | undefined,
  sentence: string,
): Promise<void> {
  const listener = await listen(place, { context, ...authOption(auth) });
  void (async () => {
    for await (const request of listener) {
      try {
        refuse(request, new RefusalError('EOPNOTSUPP', sentence));
      } catch {
        // The client has given up.
      }
    }
  })();
}
