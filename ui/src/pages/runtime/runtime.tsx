/**
 * Implements the Runtime page: log level, memory, tasks, and profiles.
 */
import { isReadOnly, mayOperate } from "../../data/about.ts";
import { PageHead } from "../../parts/panel.tsx";
import { LogLevel } from "./log-level.tsx";
import { Memory } from "./memory.tsx";
import { ProfilePanel } from "./profile-panel.tsx";
import { TaskTree } from "./task-tree.tsx";

export function Runtime() {
  return (
    <>
      <PageHead title="Runtime" doc="Log level, memory, tasks and profiles." />
      <div class="split two">
        <div class="stack">
          {mayOperate.value ? <LogLevel /> : null}
          <TaskTree />
        </div>
        <Memory />
      </div>
      {isReadOnly.value ? null : <ProfilePanel />}
    </>
  );
}
