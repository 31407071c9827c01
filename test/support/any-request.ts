/** Requests whose opcode is known at run time only, or that break the types on purpose. */
import type { AnyWorkRequest, SendWorkRequest } from '../../host/verbs/queues/work-request.js';

/** The fields of all opcodes, each optional. */
export type AnyRequest = AnyWorkRequest;

type Posted<Request> = Request extends readonly unknown[] ? SendWorkRequest[] : SendWorkRequest;

/** The same request or list for `postSend`: the one place of the tests that casts it. */
export function asPosted<Request extends AnyRequest | readonly AnyRequest[]>(
  request: Request,
): Posted<Request> {
  return request as unknown as Posted<Request>;
}
