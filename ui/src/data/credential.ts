/**
 * Holds the credential that both playgrounds send. It is only in memory and is lost when the tab is closed.
 */
import { signal } from "@preact/signals";

export interface Credential {
  /** `none`, `token`, `header`, or `key:` and the ID of a stored key. */
  readonly source: string;
  /** Only `header` uses the name. The other sources send `authorization`. */
  readonly header: string;
  readonly value: string;
}

export const credential = signal<Credential>({ source: "none", header: "x-api-key", value: "" });

/** Maps the IDs of stored keys to keys that were created or entered in this tab. */
const secrets = new Map<string, string>();

export function rememberKey(id: string, key: string): void {
  secrets.set(id, key);
}

export function rememberedKey(id: string): string {
  return secrets.get(id) ?? "";
}

export function credentialHeaders(): Record<string, string> {
  const { source, header, value } = credential.value;
  if (source === "none" || value.trim() === "") return {};
  if (source === "header") return header.trim() === "" ? {} : { [header.trim().toLowerCase()]: value };
  return { authorization: bearerText(value) };
}

/** Adds `Bearer` unless the text starts with a scheme. */
export function bearerText(text: string): string {
  const trimmed = text.trim();
  return /^[A-Za-z][A-Za-z0-9-]* +\S/.test(trimmed) ? trimmed : `Bearer ${trimmed}`;
}
