/** Objects by number. Numbers grow, so that an event never names an object made later. */
import { RefusalError } from '../errors/errors.js';

/** A class, whether or not others may call its constructor. */
export type Kind<Type> = Function & { readonly prototype: Type };

export class ObjectTable {
  readonly #objects = new Map<number, object>();
  readonly #numbers = new Map<object, number>();
  #last = 0;

  add(object: object): number {
    const number = ++this.#last;
    this.#objects.set(number, object);
    this.#numbers.set(object, number);
    return number;
  }

  /** The object of that number and class. Throws RefusalError EINVAL. */
  get<Type extends object>(kind: Kind<Type>, number: bigint): Type {
    const found = this.#objects.get(Number(number));
    if (found instanceof kind) return found as Type;
    throw new RefusalError(
      'EINVAL',
      `${kind.name}: no object has the number ${number}; pass that of an object that exists`,
    );
  }

  /** All objects of a class. */
  all<Type extends object>(kind: Kind<Type>): Type[] {
    return [...this.#objects.values()].filter((one) => one instanceof kind) as Type[];
  }

  is(kind: Kind<object>, number: bigint): boolean {
    return this.#objects.get(Number(number)) instanceof kind;
  }

  /** 0: it is not in the table. */
  numberOf(object: object | undefined): number {
    return (object && this.#numbers.get(object)) ?? 0;
  }

  remove(number: bigint): void {
    const object = this.#objects.get(Number(number));
    if (!object) return;
    this.#objects.delete(Number(number));
    this.#numbers.delete(object);
  }
}
