/**
 * Formats budgets and API keys as text.
 */
import type { StoredKey } from "../../data/stored-keys.ts";

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

/** Shows fractions of a cent for the cost of single calls. */
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
  if (limit !== undefined && spent >= limit) return { level: "bad", text: "budget exhausted" };
  return { level: "ok", text: expiresAt === undefined ? "active" : `active until ${expiresAt.slice(0, 10)}` };
}

/** Converts the form to the body of `POST /keys`. The gateway validates it further. */
export function keyOrder(
  form: {
    readonly name: string;
    readonly owner: string;
    readonly team: string;
    readonly models: string;
    readonly days: string;
    readonly amount: string;
    readonly unit: string;
    readonly per: string;
  },
  nowMs: number,
): { readonly make: object } | { readonly problem: string } {
  const models = form.models
    .split(",")
    .map((model) => model.trim())
    .filter((model) => model !== "");
  const days = form.days.trim() === "" ? undefined : Number(form.days);
  if (days !== undefined && !(days > 0 && days <= 36_500)) return { problem: "Days: enter a number above 0." };
  const amount = form.amount.trim() === "" ? undefined : Number(form.amount);
  if (amount !== undefined && !(amount > 0)) return { problem: "Budget: enter a number above 0." };
  const metadata = Object.fromEntries(
    [
      ["user_id", form.owner.trim()],
      ["team", form.team.trim()],
    ].filter(([, value]) => value !== ""),
  ) as Record<string, string>;
  return {
    make: {
      name: form.name.trim(),
      ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
      ...(models.length === 0 ? {} : { models }),
      ...(days === undefined ? {} : { expiresAtMs: Math.round(nowMs + days * 86_400_000) }),
      ...(amount === undefined ? {} : { budget: { [form.unit]: amount, per: form.per } }),
    },
  };
}
