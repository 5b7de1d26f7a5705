/**
 * A list whose members carry their own links: adding and removing cost nothing and leave nothing behind. A Map or
 * Set that lives long and gets an entry per request does not: each table that it outgrows keeps the entries of its
 * time from the collector until the next full run, which was a fifth of all CPU under load.
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

  /** At the end. A member is in one list at most. */
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

  /** The member that is handed over may be removed meanwhile. */
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
