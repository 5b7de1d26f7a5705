/**
 * Users as people recognize them, for pages that ask "is that you?" and for the web UI. The texts come from tokens and from
 * key metadata, so they are cut and cleaned: no text of a user can reorder or hide the rest of the line.
 */
import { shownPrincipal } from "./principal.ts";

const MAX_PERSON_CHARS = 200;

/** The facts of an exchange, or its attributes as expressions read them. */
export interface IdentifiedBy {
  readonly jwt?: object | undefined;
  readonly apiKey?: object | undefined;
  readonly basicAuth?: object | undefined;
}

/** A short name; undefined for a client that no policy has identified. */
export function personName(
  { jwt, apiKey, basicAuth }: IdentifiedBy,
  principal: string | undefined,
): string | undefined {
  return (
    firstText(jwt, ["name", "preferred_username", "email", "sub"]) ??
    firstText(basicAuth, ["username"]) ??
    firstText(apiKey, ["name", "user", "email", "user_id", "id"]) ??
    (principal === undefined ? undefined : shownPrincipal(principal))
  );
}

/**
 * A description that tells two people apart who have the same name: the name, the account, and where it comes from. A user can often
 * choose the `name` of an account, but neither its issuer nor its subject.
 */
export function personDescription(identified: IdentifiedBy, principal: string): string {
  const { jwt } = identified;
  const shown = shownPrincipal(principal);
  const name = personName(identified, principal) ?? shown;
  if (jwt !== undefined) {
    const account = firstText(jwt, ["email", "preferred_username", "sub"]);
    const issuer = firstText(jwt, ["iss"]);
    return (
      [...new Set([name, account])].filter((text) => text !== undefined).join(", ") + (issuer ? ` at ${issuer}` : "")
    );
  }
  const key = /^key:([0-9a-f]+)$/.exec(shown)?.[1];
  if (key !== undefined) return name === shown ? `the API key ${key}` : `${name} (API key ${key})`;
  return name;
}

function firstText(source: object | undefined, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = source !== undefined && Object.hasOwn(source, name) && (source as Record<string, unknown>)[name];
    const text = typeof value === "string" ? cleaned(value) : "";
    if (text !== "") return text;
  }
  return undefined;
}

/** Control and formatting characters could turn a line around or make two names look the same. */
function cleaned(text: string): string {
  const short = text.slice(0, MAX_PERSON_CHARS);
  return short.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, "").trim();
}
