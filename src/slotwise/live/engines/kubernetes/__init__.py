"""The engine `kubernetes`: nodes are servers, pods with our `schedulerName` are jobs, and starting a job is binding its pod."""
