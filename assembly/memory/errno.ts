/**
 * Result of a control export. 0 is success; the host turns the others into refusals whose `code` is
 * the errno's name.
 */
export enum Errno {
  OK = 0,
  EPERM = 1,
  EAGAIN = 11,
  ENOMEM = 12,
  EACCES = 13,
  EBUSY = 16,
  EINVAL = 22,
  ENOSPC = 28,
  EOPNOTSUPP = 95,
}
