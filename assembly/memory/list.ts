/**
 * An intrusive list: each member has a word for its link, so a list allocates nothing, and all
 * operations but `removeFrom` take constant time. The word is 0 while the member is on no list, and
 * END in the last member.
 */

/** Addresses of the link words of the first and the last member; 0 in an empty list. */
@unmanaged
export class List {
  first: usize;
  last: usize;
}
export const LIST_SIZE: u32 = 8;
const END: usize = 1;

function isListed(link: usize): bool {
  return load<u32>(link) != 0;
}

/** Adds a member at the end; nothing happens if it is on the list. */
export function append(list: List, link: usize): void {
  if (isListed(link)) return;
  store<u32>(link, <u32>END);
  if (list.first == 0) list.first = link;
  else store<u32>(list.last, <u32>link);
  list.last = link;
}

/** Adds a member at the front; nothing happens if it is on the list. */
export function prepend(list: List, link: usize): void {
  if (isListed(link)) return;
  store<u32>(link, <u32>(list.first == 0 ? END : list.first));
  if (list.first == 0) list.last = link;
  list.first = link;
}

/** Removes the first member and returns the address of its link; 0: the list is empty. */
export function takeFirst(list: List): usize {
  const link = list.first;
  if (link == 0) return 0;
  const next = <usize>load<u32>(link);
  list.first = next == END ? 0 : next;
  store<u32>(link, 0);
  return link;
}

/** Removes a member, if it is on the list, in time linear in the list. Not for the data path. */
export function removeFrom(list: List, link: usize): void {
  if (!isListed(link)) return;
  const next = <usize>load<u32>(link);
  let before: usize = 0;
  for (let at = list.first; at != link; at = load<u32>(at)) before = at;
  if (before == 0) list.first = next == END ? 0 : next;
  else store<u32>(before, <u32>next);
  if (next == END) list.last = before;
  store<u32>(link, 0);
}
