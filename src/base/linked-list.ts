/**
 * Implements a list whose members contain their own links, so that adding and removing allocate nothing.
 */

export interface Linked<Member> {
  next: Member | undefined;
  previous: Member | undefined;
}

export class LinkedList<Member extends Linked<Member>> {
  #first: Member | undefined = undefined;
  #last: Member | undefined = undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get first(): Member | undefined {
    return this.#first;
  }

  get last(): Member | undefined {
    return this.#last;
  }

  /** A member can be in only one list. */
  add(member: Member): void {
    member.previous = this.#last;
    if (this.#last === undefined) this.#first = member;
    else this.#last.next = member;
    this.#last = member;
    this.#size += 1;
  }

  remove(member: Member): void {
    if (member.previous === undefined) {
      if (this.#first !== member) return;
      this.#first = member.next;
    } else member.previous.next = member.next;
    if (member.next === undefined) this.#last = member.previous;
    else member.next.previous = member.previous;
    member.next = undefined;
    member.previous = undefined;
    this.#size -= 1;
  }

  /** The visited member may be removed during the visit. */
  each(visit: (member: Member) => void): void {
    for (let member = this.#first; member !== undefined; ) {
      const { next } = member;
      visit(member);
      member = next;
    }
  }

  find(fits: (member: Member) => boolean): Member | undefined {
    for (let member = this.#first; member !== undefined; member = member.next) if (fits(member)) return member;
    return undefined;
  }
}
