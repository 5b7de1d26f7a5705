/**
 * Reads a list result in one pass over its text. The validation of a list and the filters after it need the same
 * offsets.
 */
import type { Steps } from "../../base/sliced-work.ts";
import { eachObjectInSteps, type KeyedSpan, membersInSteps } from "../../json/json-text.ts";
import { keyAt, QUOTE, type Span, skipSpace } from "../../json/syntax.ts";
import type { ServerMessage } from "./json-rpc.ts";
import { itemKeyProblem } from "./message-rules.ts";

export interface ListMembers {
  /** The member of the result that contains the items. */
  readonly member: string;
  /** The member of an item that contains its name. */
  readonly key: string;
}

export interface ListContent {
  readonly of: string;
  /** All members of the result. */
  readonly members: readonly KeyedSpan[];
  /** Undefined if the member is missing or is not an array. */
  readonly items: readonly ListItem[] | undefined;
  /** Completes "answered with" for the first item that is invalid. */
  readonly itemProblem: string | undefined;
}

/** A list can have a million items, so an item has no other fields. */
export interface ListItem extends Span {
  /** The offsets of the name, with its quotes. Both are 0 if the item has no name that is a string. */
  readonly nameStart: number;
  readonly nameEnd: number;
}

/** Returns an empty string if the item has no name. */
export function itemName(text: string, { nameStart, nameEnd }: ListItem): string {
  return nameEnd === 0 ? "" : keyAt(text, nameStart, nameEnd);
}

/** Servers use about ten for a list or an item. The members are checked in one piece. */
export const MAX_MEMBERS = 1_000;

/** Messages do not change, so the offsets are read once for all steps that a message passes. */
const known = new WeakMap<ServerMessage, ListContent>();

export function* readListContent(message: ServerMessage, { member, key }: ListMembers): Steps<ListContent> {
  const before = known.get(message);
  if (before?.of === member) return before;
  const { text } = message;
  let items: ListItem[] | undefined;
  let itemProblem: string | undefined;
  let members: readonly KeyedSpan[] = [];

  const take = (start: number, end: number, own: readonly KeyedSpan[]): void => {
    const name = own.find((one) => one.key === key);
    const isNamed = name !== undefined && text.charCodeAt(name.start) === QUOTE;
    items?.push({ start, end, nameStart: isNamed ? name.start : 0, nameEnd: isNamed ? name.end : 0 });
    if (itemProblem !== undefined) return;
    if (own.length > MAX_MEMBERS) itemProblem = `an item with more than ${MAX_MEMBERS} members`;
    else if (!isNamed) itemProblem = `an item whose "${key}" is not a string`;
    else {
      const unclear = itemKeyProblem(own);
      if (unclear !== undefined) itemProblem = `an item that can be read in two ways: ${unclear}`;
    }
  };

  function* readItems(memberKey: string, start: number): Steps<number | undefined> {
    if (memberKey !== member || text[start] !== "[") return undefined;
    items = [];
    return yield* eachObjectInSteps(text, start, take);
  }

  yield* membersInSteps(text, skipSpace(text, 0), {
    wanted: "result",
    *readValue(topKey, start) {
      if (topKey !== "result") return undefined;
      members = yield* membersInSteps(text, start, { readValue: readItems });
      return start;
    },
  });
  const content = { of: member, members, items, itemProblem };
  known.set(message, content);
  return content;
}
