/**
 * Settings between a client's names and a provider's: what the provider has is written under its name, what it has not
 * is a loss.
 */
import type { Members } from "../../json/json.ts";
import type { Setting, SettingName, Settings } from "./conversation.ts";
import type { Losses } from "./losses.ts";

export function readSettings(settings: Readonly<Record<SettingName, Setting | undefined>> | Settings): Settings {
  const given: Partial<Record<SettingName, Setting>> = {};
  for (const [name, setting] of Object.entries(settings))
    if (setting !== undefined && setting.value !== undefined && setting.value !== null)
      given[name as SettingName] = setting;
  return given;
}

/** `names`: the provider's, by ours. */
export function writeSettings(
  settings: Settings,
  names: Readonly<Partial<Record<SettingName, string>>>,
  losses: Losses,
): Members {
  const written: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(settings) as [SettingName, Setting][]) {
    const theirs = names[name];
    if (theirs === undefined) losses.lose(setting.param, setting.value);
    else written[theirs] = setting.value;
  }
  return written;
}
