-- For Slurm's plugin job_submit/lua (JobSubmitPlugins=lua; this file lies beside slurm.conf).
-- Jobs that users submit to the partition are held, so that Slotwise schedules them and users need not type --hold.
-- Scripts of a shell say themselves when they begin and with which code they end, in a folder that all nodes and users can write to (mode 1777):
-- then no job runs twice and every exit code is right, even if the controller forgets what it did last.

local partition = os.getenv("SLOTWISE_PARTITION") or "watched"
local records = os.getenv("SLOTWISE_RECORDS") or "/shared/slotwise-records"

local lines = [[
slotwise_record='%s'/${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}-%s
if (set -C; : > "$slotwise_record.began") 2>/dev/null; then
    trap 'echo $? > "$slotwise_record.new" && ln "$slotwise_record.new" "$slotwise_record.ended"; rm -f "$slotwise_record.new"' EXIT
elif [ -e "$slotwise_record.began" ]; then
    echo "slotwise: this job was executed before, and is not executed again" >&2
    : > "$slotwise_record.again"
    exit 0
fi
]]

local shells = { sh = true, bash = true, dash = true, ksh = true, zsh = true }

-- Numbers of jobs are given again when the controller has forgotten some: this word tells the jobs of one number apart.
local function new_word()
    local source = assert(io.open("/dev/urandom", "rb"))
    local bytes = source:read(8)
    source:close()
    return (bytes:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

local function with_records(script, word)
    local first, rest = script:match("^(#![^\n]*)\n(.*)$")
    if first == nil then return nil end
    local program = first:match("^#!%s*(%S+)")
    local name = program and program:match("([^/]+)$")
    if name == "env" then name = first:match("^#!%s*%S+%s+(%S+)") end
    if not shells[name or ""] then return nil end
    return first .. "\n" .. lines:format(records, word) .. rest
end

function slurm_job_submit(job, partitions, uid)
    if job.partition ~= partition or (job.name or ""):match("^slotwise%-") then return slurm.SUCCESS end
    job.priority = 0
    job.requeue = 0
    local word = new_word()
    local script = job.script and with_records(job.script, word)
    if script then
        job.script = script
        job.comment = "slotwise-records=" .. word .. (job.comment and " " .. job.comment or "")
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
