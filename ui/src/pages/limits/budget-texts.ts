/**
 * Budgets and keys as the admin interface tells of them, in words.
 */

export interface Budget {
  readonly name: string;
  readonly owner: string;
  readonly unit: "usd" | "tokens";
  readonly limit: number;
  readonly per: string;
  readonly hard: boolean;
  readonly period: string;
  readonly resetSeconds: number;
  readonly keysInUse: number;
  readonly keys: readonly { readonly key: string; readonly spent: number; readonly remaining: number }[];
}

export interface StoredKey {
  readonly id: string;
  readonly name: string;
  readonly models?: readonly string[];
  readonly budget?: { readonly cost?: number; readonly tokens?: number; readonly per: string };
  readonly spent?: number;
  readonly expiresAt?: string;
  readonly expired?: boolean;
}

/** Cents matter in small budgets, and fractions of them in what single calls cost. */
export function amountText(amount: number, unit: Budget["unit"]): string {
  if (unit === "tokens") return `${new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 }).format(amount)} tokens`;
  const digits = amount !== 0 && Math.abs(amount) < 0.01 ? 6 : 2;
  return `$${new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: digits }).format(amount)}`;
}

export function stateOfKey({ expiresAt, expired, budget, spent = 0 }: StoredKey): {
  level: "ok" | "bad";
  text: string;
} {
  if (expired === true) return { level: "bad", text: `expired ${expiresAt ?? ""}`.trimEnd() };
  const limit = budget?.cost ?? budget?.tokens;
  if (limit !== undefined && spent >= limit) return { level: "bad", text: "budget spent" };
  return { level: "ok", text: expiresAt === undefined ? "active" : `active until ${expiresAt}` };
}
