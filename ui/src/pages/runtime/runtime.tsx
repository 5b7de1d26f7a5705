/**
 * Implements the Runtime page: log level, memory, tasks, and profiles.
 */
import { isReadOnly, mayOperate } from "../../data/about.ts";
import { PageHead } from "../../parts/panel.tsx";
import { LogLevel } from "./log-level.tsx";
import { Memory } from "./memory.tsx";
import { ProfilePanel } from "./profile-panel.tsx";
import { TaskTable } from "./task-table.tsx";

export function Runtime() {
  return (
    <>
      <PageHead title="Runtime" doc="Log level, memory, tasks, and profiles." />
      <div class="columns">
        {mayOperate.value ? <LogLevel /> : null}
        <Memory />
      </div>
      <TaskTable />
      {isReadOnly.value ? null : <ProfilePanel />}
    </>
  );
}
